package deployment

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
)

// rollback is what becomes of the annotation deprecated.deployment.rollback.to. In any case the annotation goes.
type rollback struct {
	to       *appsv1.ReplicaSet // whose template and annotations the Deployment gets; nil: it keeps what it has. The cache may lack the template
	revision int64              // of to
	problem  rollbackProblem    // why to is nil
}

type rollbackProblem int

const (
	rollbackNone      rollbackProblem = iota // it is done
	rollbackNoLast                           // no revision was asked for, and there is none before the present one
	rollbackNotFound                         // no ReplicaSet has the revision
	rollbackUnchanged                        // it is that of the present template
)

// rollback returns nil if none is asked for in a way that can be read.
func (p pass) rollback() *rollback {
	revision, err := strconv.ParseInt(p.d.Annotations[appsv1.DeprecatedRollbackTo], 10, 64)
	if err != nil {
		return nil
	}
	if revision == 0 {
		if revision = highestRevision(p.old); revision == 0 {
			return &rollback{problem: rollbackNoLast}
		}
	}
	if p.found && revisionOf(p.next.rs.Annotations) == revision {
		return &rollback{problem: rollbackUnchanged}
	}
	for _, s := range p.old {
		switch {
		case revisionOf(s.rs.Annotations) != revision:
		case s.current:
			return &rollback{problem: rollbackUnchanged}
		default:
			return &rollback{to: s.rs, revision: revision}
		}
	}
	return &rollback{problem: rollbackNotFound}
}
