"""Without a broker: files in, versions and plots out."""
