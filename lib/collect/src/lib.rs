//! Answers the agent's questions, drains its records, feeds the trace.
