// Package deployment is the deployment-controller. It rolls out and scales Deployments.
//
// The controller creates, adopts, resizes and deletes ReplicaSets, and writes the status of Deployments.
//
// Read reconcile.go first: one sync in numbered steps. rollout.go makes a plan, a pure function of the ReplicaSets;
// rolling.go, recreate.go and scale.go find the sizes. write.go executes a plan: create.go sends the POST,
// change.go the PATCH of each ReplicaSet.
//
//	Deployment, ReplicaSets ─▶ rolloutInput ─▶ sizing (targets) ─▶ plan (create, changes) ─▶ rolloutResult ─▶ status
//
// Invariants, for a constant spec and no other writer, however old the caches are:
//
//   - No write raises the sum of sizes above replicas + maxSurge.
//   - No write lowers the available pods below replicas - maxUnavailable.
//   - A template and a collisionCount have at most one ReplicaSet.
//   - A killed process can be restarted after any write.
//
// Unlike upstream, one sync writes all steps that keep the bounds, and rejected writes of one ReplicaSet do not
// block the others. docs/migration.md lists the differences.
package deployment
