complete --keep-order --exclusive --command sptrace --arguments "(SPTRACE_COMPLETE=fish sptrace -- (commandline --current-process --tokenize --cut-at-cursor) (commandline --current-token))"
