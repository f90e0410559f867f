"""What people are told of a workload: one cause, since when, its effect on answers, one act. For page, CLI, notices."""
