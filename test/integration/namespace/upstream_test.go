package namespace_test

// Tests by requirement. "pkg" marks tests of pkg/controllers/namespace, "int" tests of this package.
//
// The cases of kube-controller-manager v1.37's own tests:
//
//	upstream (pkg/controller/namespace/deletion)                 cases  ours
//	TestFinalized                                                    2  pkg TestFinalizedNamespaceCostsOneRead, TestFinalizers
//	TestFinalizeNamespaceFunc                                        1  pkg TestEmptyNamespaceIsListedOnceAndFinalized
//	TestRetryOnConflictError                                         1  pkg TestConflictsAreRetriedAndBounded, TestConflictWithANamesakeEndsTheSync
//	TestSyncNamespaceThatIsActive                                    1  pkg TestActiveNamespaceCostsOneRead
//	TestSyncNamespaceThatIsTerminating… pending-finalize             2  pkg TestEmptyNamespaceIsListedOnceAndFinalized
//	  complete-finalize                                              2  pkg TestFinalizedNamespaceCostsOneRead
//	  groupVersionResourceErr, groupVersionResourceErr-finalize      4  pkg TestPartialDiscoveryPurgesOnceAndWaits, TestBadGroupVersionPurgesTheRest
//	TestDeleteEncounters404                                          2  pkg TestNotFoundIsNotRemembered
//	TestUpdateConditions                                             5  pkg TestWithConditions
//	TestProcessContentTotals                                         4  pkg TestConditionTexts
//
//	upstream (elsewhere)
//	cmd/kube-controller-manager: TestController_DiscoveryError       2  pkg TestNewSendsNothing, TestPartialDiscoveryPurgesOnceAndWaits
//	test/integration/namespace: TestNamespaceCondition               1  int TestConditionsHaveTheKnownTexts
//	test/integration/namespace: TestNamespaceLabels                  1  int TestActiveNamespacesAreLeftAlone
//	test/integration/namespace: TestUpdateResourceInDeletedNamespace 1  int TestZeroGraceIsForOneAPIServer (gone), TestTerminatingNamespaceTakesUpdatesOnly
//	e2e all pods are removed when a namespace is deleted             1  int TestPodsAreDeletedAtOnceAndTheRestAfterTheGrace
//	e2e all services are removed when a namespace is deleted         1  int TestManyAtOnce
//	e2e should delete fast enough (90 of 100 in 150 s)               1  int TestManyAtOnce (100 of 100)
//	e2e should patch a Namespace, apply changes to a namespace       3  int TestActiveNamespacesAreLeftAlone
//	  status, apply an update to a Namespace
//	e2e should apply a finalizer to a Namespace                      1  pkg TestForeignFinalizersAreVerifiedAndNotFinalized
//	e2e namespace deletion should delete pod first                   1  int TestPodsGoFirst
//
// Obstacles to a deletion:
//
//	custom resources, some with finalizers                    int TestCustomResources
//	their type goes, another type comes                       int TestTypeGoesWhileANamespaceWaitsForIt; pkg TestTypesComeAndGo
//	their conversion webhook is down                          pkg TestFailingConversionWebhookBlocksNoType
//	an APIService that is down; gone after its repair         int TestBrokenAPIService
//	an API that never responds                                pkg TestSilentAPIBlocksNoOtherType,
//	                                                          TestSilentAPIBlocksNoOtherNamespace
//	types without deletecollection, list or delete            int TestTypesWithFewVerbs
//	a discovery without the core API                          pkg TestDiscoveryWithoutCoreTypes
//	one type fails, is throttled, loses its responses          int TestOneTypeFails
//	admission refuses the deletion of one object              int TestOneProtectedPodKeepsNoOther; pkg TestOneRejectionBlocksNoOther
//	objects that are created again after each deletion        pkg TestRecreatedObjectsCauseNoHotLoop
//	many namespaces that are stuck for good                   pkg TestStuckNamespacesCostFewRequests
//	a type that was empty before the last pass                pkg TestLastPassListsAllTypes
//	a namespace whose status cannot be written                pkg TestStatusWritesMayFail
//	finalizers of the namespace itself                        pkg TestForeignFinalizersAreVerifiedAndNotFinalized
//	watches that are frozen                                   int TestFrozenWatches
//	5,000 ConfigMaps in one namespace                         int TestLargeCollection
//	20,000 of them: resident memory grows by 30 MiB at most   int TestMemoryOfALargeNamespace (make test-large)
//	100 namespaces at once                                    int TestManyAtOnce
//	a namespace made again under its name: after its end      int TestRecreatedNamespaceKeepsItsContent, TestFinalizedWithoutAnAnswer
//	  and in the middle of a pass                             int TestReplacedNamespaceStopsThePass
//	objects created while it is being deleted, one API server int TestCreatesDuringDeletionLeaveNoOrphans (400 races)
//	  and two on one etcd, the second late                    int TestGraceOutlastsALaggingAPIServer, TestZeroGraceIsForOneAPIServer
//	a process killed at any request                           int TestKilledAtEveryRequest; all others TestFaultyRequestsConverge
//	a leader that ends before the deletion does               int TestStandbyFinishesWhatTheLeaderBegan
//
// Differences from upstream:
//
//	other types are deleted when pods cannot be               pkg TestNothingButPodsIsTouchedWhen; int TestDeniedPodsKeepTheRest
//	  and while late pods are admitted (by the audit log)     int TestGraceOutlastsALaggingAPIServer, TestPodsAreDeletedAtOnceAndTheRestAfterTheGrace
//	the conditions do not count remaining pods                int TestPodsGoFirst
//	finalize meets a conflict every time                      int TestEmptyNamespaceCostsFewRequests, TestManyAtOnce
//	72 requests for an empty namespace: 40 at most            int TestEmptyNamespaceCostsFewRequests, TestManyAtOnce
//	fixed waits: gone soon after the last pod, or finalizer   int TestPodsGoFirst, TestConditionsHaveTheKnownTexts
//	a full pass every 8 s for ever                            int TestBrokenAPIService, TestConditionsHaveTheKnownTexts
//	zero workers are accepted                                 pkg TestNewRejectsBadConfig
//	no message names what blocks                              pkg TestBlockedConditionHasObjectsAndRemedy
