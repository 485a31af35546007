package autopsy

// detector knows one pattern of lifetimes and stacks, and returns the fault that shows it, if there is one.
type detector func(*evidence) (fault, bool)

// detectors are all that look for a fault which holds memory.
var detectors = []detector{
	contextFault, growthFault, chainedFault, growingModelFault, retainedFault, openForwardsFault,
	resultsFault, concatenatedFault, windowsFault, heldFault, layersFault, idleFault,
	cacheFault, poolFault,
	prefetchFault, dataFault, restartFault, switchedFault,
	handlerFault, returnedFault, frozenFault, untrainedFault,
	adaptersFault,
	keptGradientsFault, castsFault, copiesFault, stateDictFault, loadedTwiceFault, stateGatherFault,
	unitGatherFault, flatGradientsFault, bucketsFault, unreducedFault,
	scoresFault,
	logitsFault, logitsRowsFault, outputLayerFault, shapesFault, tablesFault, pendingStateFault,
	firstDeviceFault, blasWorkspacesFault, convolutionFault,
	paddingFault, expertsFault, stagesFault, settingsFault, outsideFault, weightsFault, widenedFault,
	idleOptimizerFault,
}

// lastDetectors count if no other found a fault, the first of them that finds one: what they know fits many
// trainings.
var lastDetectors = []detector{
	outlierFault, vectorisedFault, copiedNetworkFault, comparedFault, wideLayerFault, madeWeightsFault,
	requestFault, beginsFault, functionFault, inferenceFault, moduleFault, loopFault,
}

// explains lists, for a fault, others that find the same blocks but explain them less well.
var explains = map[string][]string{
	"double_backward":    {"retained_graph"},
	"growing_parameters": {"collected_outputs", "leak", "zero_grad_kept", "double_backward"},
	"retained_graph":     {"kept_graph", "hook_keeps", "leak", "outputs_held"},
	"prefetch":           {"leak", "hook_keeps"},
	"context_keeps": {"leak", "hook_keeps", "kept_graph", "retained_graph", "collected_outputs",
		"outputs_held"},
	"exception_keeps":   {"one_backward_for_many", "eval_with_grad", "hook_keeps", "kept_graph", "leak"},
	"kv_cache":          {"collected_outputs", "sequence_growth", "leak"},
	"checkpoint_saving": {"leak"},
	"model_copy":        {"leak", "weights_too_large", "frozen_gradients"},
	"padding":           {"sequence_growth"},
	"expert_imbalance":  {"sequence_growth"},
	"cublas_workspaces": {"leak"},
	"state_dict_gather": {"leak", "model_copy", "checkpoint_saving", "eval_with_grad", "collected_outputs"},
}
