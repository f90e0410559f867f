"""The paper's experiment, run again: on recorded outputs of real models and on a workload of its own figures."""
