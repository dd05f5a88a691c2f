"""A loaded CUDA engine: weights, pools and inputs on the device, steps and their graphs."""
