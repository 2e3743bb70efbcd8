# Data, schedule and text statistics; needs neither the engine nor the matrix library.
penstock_test(
  train_data_test
  SOURCES data_test.cpp schedule_test.cpp text_stats_test.cpp
  LINKS penstock_train)
