"""Names of the statistics that passes of quantization leave in the calibration store."""

#: The largest magnitude that a layer's input x had, float64 [], and the Hessian E[x xᵀ], float64
#: [K, K].
INPUT_RANGE, INPUT_HESSIAN = "input_range", "input_hessian"
#: Of each channel of x, the mean and the largest magnitude, float64 [K].
CHANNEL_MEAN, CHANNEL_RANGE = "channel_mean", "channel_range"
#: Counts of |x| in equal bins and, last, the upper end of the last bin: float64 [2049].
INPUT_HISTOGRAM = "input_histogram"
#: How many tokens each expert of a layer got, int64 [E].
EXPERT_TOKENS = "expert_tokens"
