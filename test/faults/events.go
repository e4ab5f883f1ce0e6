package faults

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

// protobufMagic begins every object in protobuf.
var protobufMagic = []byte("k8s\x00")

// protobufHead is the length before every event in protobuf; in JSON each has a line.
const protobufHead = 4

// events finds the events in the bytes of a watch.
type events struct {
	protobuf bool
	begun    []byte // of one that is not complete
	last     []byte // the last complete one, with what is around it
}

// pass takes in the next bytes.
func (e *events) pass(p []byte) {
	for len(p) > 0 {
		n := len(p)
		if left := e.left(p); left > 0 {
			n = left
		} else if whole := e.length(p); whole > 0 {
			n = min(n, whole)
		}
		e.begun = append(e.begun, p[:n]...)
		p = p[n:]
		if e.length(e.begun) == len(e.begun) {
			e.last, e.begun = e.begun, nil
		}
	}
}

// left is how many bytes of p belong to the event that was begun; 0 if none was.
func (e *events) left(p []byte) int {
	if len(e.begun) == 0 {
		return 0
	}
	more := append(bytes.Clone(e.begun), p...)
	if whole := e.length(more); whole > 0 {
		return min(whole-len(e.begun), len(p))
	}
	return len(p)
}

// length is that of the first event in p; 0 if that cannot be known yet.
func (e *events) length(p []byte) int {
	if !e.protobuf {
		return bytes.IndexByte(p, '\n') + 1
	}
	if len(p) < protobufHead {
		return 0
	}
	return protobufHead + int(binary.BigEndian.Uint32(p))
}

// version is that of the last complete event; 0 if there is none, or it is none of an object.
func (e *events) version() uint64 {
	if len(e.last) == 0 {
		return 0
	}
	var text string
	if e.protobuf {
		var event metav1.WatchEvent
		var unknown runtime.Unknown
		var object metav1.PartialObjectMetadata // metadata is the first field of every type
		if event.Unmarshal(e.last[protobufHead:]) != nil || unknown.Unmarshal(bytes.TrimPrefix(event.Object.Raw, protobufMagic)) != nil ||
			object.Unmarshal(unknown.Raw) != nil {
			return 0
		}
		text = object.ResourceVersion
	} else {
		var event struct{ Object metav1.PartialObjectMetadata }
		if json.Unmarshal(e.last, &event) != nil {
			return 0
		}
		text = event.Object.ResourceVersion
	}
	version, _ := strconv.ParseUint(text, 10, 64) // 0 is what there is to say about any other
	return version
}

// bookmark is an event that says that its resource has come to a version, as the watch of a request wants it.
func (e *events) bookmark(r *http.Request, version uint64) ([]byte, error) {
	gvk, err := kindOf(r)
	if err != nil {
		return nil, err
	}
	object := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind},
		ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.FormatUint(version, 10)}}
	if !e.protobuf {
		event, err := json.Marshal(map[string]any{"type": watch.Bookmark, "object": object})
		return append(event, '\n'), err
	}
	raw, err := object.Marshal()
	if err != nil {
		return nil, fmt.Errorf("encode a bookmark: %w", err)
	}
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: object.APIVersion, Kind: object.Kind}, Raw: raw}
	if raw, err = unknown.Marshal(); err != nil {
		return nil, fmt.Errorf("encode a bookmark: %w", err)
	}
	event := metav1.WatchEvent{Type: string(watch.Bookmark), Object: runtime.RawExtension{Raw: append(bytes.Clone(protobufMagic), raw...)}}
	if raw, err = event.Marshal(); err != nil {
		return nil, fmt.Errorf("encode a bookmark: %w", err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...), nil
}

// kindOf is the kind of the objects that a request watches, of types that client-go knows.
func kindOf(r *http.Request) (schema.GroupVersionKind, error) {
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		return metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"), nil
	}
	resource := parse(r).resource
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	gv := schema.GroupVersion{Version: path[1]}
	if path[0] == "apis" {
		gv = schema.GroupVersion{Group: path[1], Version: path[2]}
	}
	for kind := range scheme.Scheme.KnownTypes(gv) {
		if plural := strings.ToLower(kind) + "s"; plural == resource {
			return gv.WithKind(kind), nil
		}
	}
	return schema.GroupVersionKind{}, fmt.Errorf("the kind of %s is not known", r.URL.Path)
}
