"""The recalibrator folds results, feedback and commands, as one log, into calibration versions.

The join stage (:mod:`recalibrator.join.stage`) turns results and late feedback into observations; the fit stage
(:mod:`recalibrator.fit.stage`) folds them, with commands, into versions and is the only writer of them; the API stage
(:mod:`recalibrator.api`) shows both and takes feedback and commands. Everything that decides is pure and lives
in :mod:`recalibrator.core`.
"""

from importlib.metadata import version

__version__ = version("ucci-stream")
