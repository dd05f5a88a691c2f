"""Steps of one row as a recorded list of kernel calls, without the virtual machine."""
