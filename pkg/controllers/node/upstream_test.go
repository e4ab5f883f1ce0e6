package node

// Where the cases of kube-controller-manager v1.37's own tests are found here. Those tests look inside; ours say the same of our
// functions, or of what is seen on the API. "pkg" is this package's tests, "int" is test/integration/node.
//
//	upstream (pkg/controller/nodelifecycle)                cases  ours
//	TestMonitorNodeHealth                                      9  pkg TestZoneStates, TestN51, TestN50
//	TestPodStatusChange                                        1  none: dead code upstream
//	TestMonitorNodeHealthUpdateStatus                          4  pkg TestUnknownConditions, TestFirstSight, TestJudge, TestLeaseCases
//	TestMonitorNodeHealthUpdateNodeAndPodStatusWithLease      10  pkg TestLeaseCases, TestUnknownConditions, TestSignsOfLife
//	TestMonitorNodeHealthMarkPodsNotReady                      3  pkg TestPodsMarkedWithTheirNode
//	TestMonitorNodeHealthMarkPodsNotReadyWithWorkerSize        2  pkg TestEveryPodIsWrittenOnce (10 × 20 pods instead of 50 × 100)
//	TestMonitorNodeHealthMarkPodsNotReadyRetry                 3  pkg TestPodWriteIsRetriedUntilItSucceeds, TestSilentNodeGoesTheWholeWay;
//	                                                              the list of pods cannot fail here, it is a cache's
//	TestApplyNoExecuteTaints                                   1  pkg TestNoExecuteFollowsReady
//	TestApplyNoExecuteTaintsToUnreachableNode                  1  pkg TestSilentNodeGoesTheWholeWay, TestN41
//	TestApplyNoExecuteTaintsToNodesEnqueueTwice                1  pkg TestNoExecuteFollowsReady, TestTokensGoToThoseWhoNeedThem
//	TestSwapUnreachableNotReadyTaints                          1  pkg TestDesiredTaints, TestNoExecuteFollowsReady
//	TestTaintsNodeByCondition                                  4  pkg TestDesiredTaints
//	TestNodeEventGeneration                                    1  pkg TestNodeEvents
//	TestReconcileNodeLabels                                    4  pkg TestMissingLabels, TestLabelsAndTaintsGoInOnePatch
//	TestTryUpdateNodeHealth                                    8  pkg TestJudge, TestFirstSight, TestUnknownConditions
//	Test_isNodeExcludedFromDisruptionChecks                    3  pkg TestExcluded
//	TestProcessPodMarkPodNotReady                              3  pkg TestLatePods
//	scheduler: TestUniqueQueueGet, TestAddNode, TestDelNode,   8  pkg TestTokensGoToThoseWhoNeedThem, TestNodeMovesToAnotherZone,
//	  TestTry, TestTryOrdering, TestTryRemovingWhileTry,          TestZoneWithoutRateTaintsNobody, TestConflictsAreRetriedQuietly
//	  TestClear, TestAddAfterTry
//	scheduler: TestSwapLimiter                                 1  pkg TestLimiter, TestRateOfOneResumesAfterAStop
//
//	upstream (elsewhere)
//	pkg/controller/util/consistency: all                       8  pkg TestSight, TestLeaseCases, TestN27
//	pkg/util/taints: TestAddOrUpdateTaint, TestRemoveTaint,    6  pkg TestDesiredTaints
//	  TestDeleteTaint, TestDeleteTaintByKey, TestTaintExists,
//	  TestTaintSetDiff and the filters
//	test/integration/node: TestEvictionForNoExecuteTaint…      3  int, same name
//	test/integration/node: TestTaintBasedEvictions             8  int, same name: 4, each of which upstream runs in two layouts
//	test/integration/scheduler/taint: TestTaintNodeByCondition 13 int, same name
