"""The status page: HTML without JavaScript first, plots as SVG."""
