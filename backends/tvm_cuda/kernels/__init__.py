"""The kernels of CUDA engines: for each config of the CPU's kernels a function of TIR that launches
device code of ``../sources``. Weights, pools and results have the CPU's layouts
(docs/normal-form.md)."""
