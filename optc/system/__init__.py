"""All of it stands on the machine: hardware, processes, files of others, options, units."""
