//! Chooses a tactic for each call site and builds the plan for the agent.
