package kcmtest

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/rest"

	"minikcm/internal/fakeapi"
)

func TestNoConnectionIsMadeAfterTheEnd(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	made, goOn := make(chan net.Conn), make(chan struct{})
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		made <- conn
		<-goOn
		return conn, err
	}
	c := fakeapi.Must(newConnections(&rest.Config{Host: server.URL, Dial: dial}))
	results := make(chan error, 1)
	get := func() {
		resp, err := (&http.Client{Transport: c.config.Transport}).Get(server.URL)
		if err == nil {
			err = resp.Body.Close()
		}
		results <- err
	}

	go get()
	conn := <-made
	c.close()
	close(goOn)
	fakeapi.WantError(t, "a request whose connection was made while all were closed", <-results, net.ErrClosed)
	if _, err := conn.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the connection is still open: %v", err)
	}

	go get()
	select {
	case conn := <-made:
		t.Errorf("a connection was made to %v after the end", conn.RemoteAddr())
		<-results
	case err := <-results:
		fakeapi.WantError(t, "a request after the end", err, net.ErrClosed)
	}
}
