// Package garbagecollector removes objects whose owners are gone, and lets owners go that wait for their dependents or make orphans of them.
//
// The way of one object:
//
//	feed ─▶ graph ─▶ key ─▶ what the graph holds against its owners ─▶ ask the API server ─▶ judge ─▶ decide ─▶ one request
//
// and of one owner that is being deleted with a finalizer of ours:
//
//	key ─▶ read it live ─▶ its dependents, in the graph and in lists ─▶ finish ─▶ collect, unblock, orphan or finalize
//
// # Where to read
//
//	concern                      files
//	what is known of objects     object, graph, edge, suspicion, sights, feed; identity, intern
//	which types there are        types, local, schedule; feeds, standing
//	proof that an owner is gone  reference, evidence, owners, inquiry
//	decisions, which are pure    plan, finish, cycle, request
//	doing                        reconcile; finish_owner, orphans, lists; apply
//	telling                      report, explain; memory, metrics
//	wiring                       registration, controller
//
// File by file:
//
//   - The graph is the only copy of what is in the cluster, and small: 64 bytes for an object and as many for a reference, besides the name and an entry in the
//     index. edge.go is who refers to whom there, suspicion.go what speaks against an owner, sights.go what else is read off it, feed.go how it comes in.
//   - types.go and local.go are which types there are, and which of them the API server serves itself. schedule.go is when discovery is asked, feeds.go the life
//     of their feeds, standing.go how far a feed has come.
//   - reference.go says where the owner is that a reference names, or why nobody can tell; evidence.go whether it is present, waiting, absent or unknown.
//     owners.go asks for the owners of an object until that is known. inquiry.go is how questions are asked for many, and not of an API that does not answer.
//   - plan.go decides about an object, finish.go about an owner that is being deleted, cycle.go how owners that wait for each other come free. request.go is
//     what is sent, and what comes of it.
//   - reconcile.go carries out what was decided about an object; finish_owner.go the same about an owner that is being deleted, and orphans.go about one whose
//     dependents are to stay. lists.go looks for dependents that the graph does not show. apply.go sends.
//   - explain.go is what users are told when nothing is sent, memory.go what has to be remembered for that and for back-offs.
//
// # Nothing goes without proof
//
// The graph can be late, and a feed can be silent. What it shows is enough to leave an object alone, and no more than a suspicion otherwise. An owner is
// absent in these cases only (see judge):
//
//   - The API server showed another object under its name.
//   - The API server said that there is no object of this name, and something else says so, too: the owner's feed told of its deletion; or the feed has
//     been up to date for two seconds since the reference was seen and does not show the owner; or the API server had said the same two seconds before.
//   - The API server itself serves the type, and no object can have such a name.
//   - Its kind is no longer served, see below.
//
// An answer counts if it was asked for after the reference was seen: who wrote the reference had seen the owner, and an answer from before may be about a
// namesake. It is good for ten seconds. That an owner waits for its dependents can end, so it is asked for at each look, and good for a second.
// A decision is judged again at the moment at which its request can be sent.
//
// A 404 that does not name the object proves nothing: a server that does not know the type yet, or no longer, gives it for every path. Neither do a refusal
// and silence.
//
// An object whose kind is no longer served cannot be asked for. It is absent if its feed told of its deletion before discovery stopped to show
// the kind, as it is when a CustomResourceDefinition is deleted with its objects; otherwise it stays unknown.
//
// Evidence is about one reference as it is written: group, kind, name, UID, and the namespace of the dependent. The version does not matter
// where one storage stands behind all of them.
//
// An owner that its feed shows alive is not asked for, however long the feed has been silent: its dependents stay until the feed is opened again, which
// is no worse than late. An object that a live read does not find vanishes from the graph.
//
// Deletes carry the UID and the resource version that the decision was made on, so an object that has got another owner since is not deleted, and
// what was done already is not done to a namesake.
//
// # One does not keep others waiting
//
// An object may have thousands of owners, an API may not answer, and admission may take long in a namespace. So questions about one object are few at once, as
// are those about one type. An API whose reads time out backs off, from a
// second to a minute, and one read then tries it. Writes share slots by
// namespace, and by the owner on whose account they are. Who waits for a slot in vain comes again.
//
// # Owners that are being deleted
//
// Orphaning is exact: discovery is asked, and every type that it shows and that may hold a dependent is listed, after the deletion was seen. The list of a small type
// covers all namespaces and serves all owners whose deletion was seen before the list began. As long as one
// cannot be listed, or a group cannot be discovered, the owner stays. It also stays when dependents have come meanwhile, three times at most, a second
// each: somebody who replaces each orphan by a new dependent would hold it for ever. What comes after that goes with the owner. Discovery may lag: a CustomResourceDefinition or an APIService that it does not show
// holds such owners for a minute. A type that has gone before its objects were seen holds them for ten minutes, unless its definition, which goes after the last
// of its objects, has gone, too. The graph alone decides about a foreground deletion, which waits half a minute for the first list of a type.
//
// Owners that wait for each other, which is looked for when nothing has moved for a second, are let go by the one with the lowest UID, whose blockers no longer
// hold it. A reference to oneself holds
// nobody, and neither does one that cannot be meant because its owner is in another namespace.
//
// # Where we differ from upstream
//
// kube-controller-manager v1.37 takes any 404 for a proof, orphans those dependents that it has seen by then, and lets owners wait for each other
// for ever. It reads every object before it deletes it. It keeps all references of an object that has an owner that lives and another that
// is unknown; here those to owners that are known to be gone are taken away, as they would be whatever the unknown one turns out to be.
package garbagecollector
