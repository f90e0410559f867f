"""What labels buy: policies at several budgets of labels, and what the plan of labels promises beside what is found."""
