"""Which plan: budgets, bounds on time, frontiers, nested loops."""
