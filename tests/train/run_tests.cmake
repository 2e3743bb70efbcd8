# Whole runs: nano models on real text, over every way of running them that must not matter.
penstock_test(
  train_run_test
  SOURCES run_test.cpp
  LINKS penstock_train penstock_cli_core)
