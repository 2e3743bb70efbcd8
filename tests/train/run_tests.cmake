# Whole runs: nano models on real text, over every way of running them that must not matter.
penstock_test(
  train_run_test
  SOURCES run_test.cpp
  LINKS penstock_train penstock_cli_core)

# As the program sets it for itself: without it waiting threads take the cores of those that work.
set(environment_file ${CMAKE_CURRENT_BINARY_DIR}/train_run_test_environment.cmake)
file(WRITE ${environment_file}
     "if(train_run_test_TESTS)\n  set_tests_properties(\${train_run_test_TESTS} PROPERTIES "
     "ENVIRONMENT OMP_WAIT_POLICY=passive)\nendif()\n")
set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${environment_file})
