"""Work on files: replays, bootstraps, router files and plots of versions."""
