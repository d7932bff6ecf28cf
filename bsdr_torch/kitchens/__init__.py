"""People in Overcooked kitchens: habit, pauses, a partner, and a planner whose reward is learned."""
