"""Reports as pages: one HTML file without other files, its plots as SVG, all text escaped."""
