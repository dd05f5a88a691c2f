"""Names of the statistics that passes of quantization leave in the calibration store."""

#: The largest magnitude that a layer's input x had, float64 [], and the Hessian E[x xᵀ], float64
#: [K, K].
INPUT_RANGE, INPUT_HESSIAN = "input_range", "input_hessian"
#: The two parts of a weight's correction (`propagate.targets`): float32 [K, K], float32 [N, K].
CORRECTION_MIX, CORRECTION_ADD = "correction_mix", "correction_add"
