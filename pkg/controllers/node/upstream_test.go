package node

// Places of the test cases of kube-controller-manager v1.37: "pkg" is this package, "int" is test/integration/node.
//
//	upstream (pkg/controller/nodelifecycle)  cases  ours
//	TestMonitorNodeHealth  9  pkg TestTaintsOfZones, TestNoTaintStaysWhileAllZonesAreDown,
//	    TestReadyNodesGetNewGracePeriodAfterAStop
//	TestPodStatusChange  1  none: dead code upstream
//	TestMonitorNodeHealthUpdateStatus  4  pkg TestUnknownConditions, TestLeaseCases
//	TestMonitorNodeHealthUpdateNodeAndPodStatusWithLease  10  pkg TestLeaseCases, TestUnknownConditions,
//	    TestLeasesOfOtherTimes
//	TestMonitorNodeHealthMarkPodsNotReady  3  pkg TestPodsMarkedWithTheirNode
//	TestMonitorNodeHealthMarkPodsNotReadyWithWorkerSize  2  pkg TestPodsMarkedWithTheirNode
//	TestMonitorNodeHealthMarkPodsNotReadyRetry  3  pkg TestPodWriteIsRetriedUntilItSucceeds,
//	    TestSilentNode;
//	                                                              the list of pods cannot fail here, it is a cache's
//	TestApplyNoExecuteTaints  1  pkg TestNoExecuteFollowsReady
//	TestApplyNoExecuteTaintsToUnreachableNode  1  pkg TestSilentNode,
//	    TestConflictsNeedNoCache
//	TestApplyNoExecuteTaintsToNodesEnqueueTwice  1  pkg TestNoExecuteFollowsReady, TestTaintsOfZones
//	TestSwapUnreachableNotReadyTaints  1  pkg TestDesiredTaints, TestNoExecuteFollowsReady
//	TestTaintsNodeByCondition  4  pkg TestDesiredTaints
//	TestNodeEventGeneration  1  pkg TestNodeEvents
//	TestReconcileNodeLabels  4  pkg TestMissingLabels, TestLabelsAndTaintsGoInOnePatch
//	TestTryUpdateNodeHealth  8  pkg TestLeaseCases, TestUnknownConditions
//	Test_isNodeExcludedFromDisruptionChecks  3  pkg TestTaintsOfZones
//	TestProcessPodMarkPodNotReady  3  pkg TestPodsMarkedWithTheirNode
//	scheduler: TestUniqueQueueGet, TestAddNode, TestDelNode,  8  pkg TestTaintsOfZones,
//	  TestTry, TestTryOrdering, TestTryRemovingWhileTry,  TestConflictsNeedNoCache
//	  TestClear, TestAddAfterTry
//	scheduler: TestSwapLimiter  1  pkg TestTaintsOfZones
//
//	upstream (elsewhere)
//	pkg/controller/util/consistency: all  8  pkg TestOutages, TestLeaseCases
//	pkg/util/taints: TestAddOrUpdateTaint, TestRemoveTaint,  6  pkg TestDesiredTaints
//	  TestDeleteTaint, TestDeleteTaintByKey, TestTaintExists,
//	  TestTaintSetDiff and the filters
//	test/integration/node: TestEvictionForNoExecuteTaint…  3  [tainteviction TestMark, TestEvents]
//	test/integration/node: TestTaintBasedEvictions  8  pkg TestNoExecuteFollowsReady, [tainteviction TestUpstreamCases]
//	test/integration/scheduler/taint: TestTaintNodeByCondition 13 pkg TestDesiredTaints

// Defects of upstream, and the tests that show their absence. Rows of other packages are in brackets.
//
//	a node made again under its name inherits its predecessor's age  TestNodeRecreatedWithinASecond
//	a restart removes all NoExecute taints and adds them again  TestStandbyContinuesRateOfTaints
//	a write to a dead node's Lease keeps it alive for ever  TestLeasesOfOtherTimes
//	nodes that could not be judged are left out of the zone's count
//	    TestBrokenLeaseWatch
//	a taint waits for the cache to show our own write  TestConflictsNeedNoCache
//	a taint that comes during the stop of all zones stays  TestNoTaintStaysWhileAllZonesAreDown
//	a zone of excluded nodes is new at every pass  TestTaintsOfZones
//	tokens are spent on nodes that need none  TestTaintsOfZones
//	a rate of one never resumes, a rate of zero taints one  TestTaintsOfZones
//	pods of a node that goes from False to Unknown stay Ready  TestPodsMarkedWithTheirNode
//	a crash between node and pods leaves pods Ready  TestPodWriteIsRetriedUntilItSucceeds; int TestKilledAtEachWrite
//	changed tolerations do not move a deadline  [tainteviction TestUpstreamCases, TestDecide]
//	a restart starts all deadlines again  [tainteviction TestRestart]
//	an eviction is given up after 50 ms  [tainteviction TestRejectionsOfAllKinds]
//	a pod is taken for another of its name  [tainteviction TestSameName]
//	terminating pods are evicted again  [tainteviction TestTerminatingAndFinished]
//	deadlines outlive their node  [tainteviction TestUpstreamCases]
