"""The page's plots as SVG: points and statuses flow in, markup flows out. No script, no fonts from elsewhere."""
