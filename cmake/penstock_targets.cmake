# penstock_library(NAME SOURCES file... [LINKS target...]): the static library penstock_NAME.
function(penstock_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  add_library(penstock_${name} STATIC ${ARG_SOURCES})
  target_link_libraries(penstock_${name} PUBLIC penstock_flags ${ARG_LINKS})
endfunction()

# penstock_test(NAME SOURCES file... [LINKS target...] [LABELS label...] [TIMEOUT seconds]
#               [COMPUTES] [WITHOUT address|thread...]):
# one GoogleTest program; each of its tests is a CTest test. Labels: CONTRIBUTING.md lists them.
# COMPUTES: the test itself does so much that it is optimized in builds with sanitizers, too.
# WITHOUT: sanitizers that would see nothing there, and so do not build it; say why beside it.
function(penstock_test name)
  cmake_parse_arguments(ARG "COMPUTES" "TIMEOUT" "SOURCES;LINKS;LABELS;WITHOUT" ${ARGN})
  foreach(sanitizer IN LISTS ARG_WITHOUT)
    if(PENSTOCK_SANITIZE MATCHES ${sanitizer})
      return()
    endif()
  endforeach()
  add_executable(${name} ${ARG_SOURCES})
  # Several files at once: their names differ, and headers are read once. What replaces operator
  # new stays alone: inlined, its malloc() would not be the partner of its delete.
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON)
  foreach(source IN LISTS ARG_SOURCES)
    if(source MATCHES "allocation_count|allocation_probe|failing_new")
      set_source_files_properties(${source} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
  if(NOT ARG_COMPUTES)
    target_compile_options(${name} PRIVATE ${PENSTOCK_QUICK_TEST_FLAGS})
  endif()
  target_link_libraries(${name} PRIVATE penstock_flags ${ARG_LINKS} GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  # NO_PRETTY_VALUES: names are GoogleTest's own, which suites give; values of other types would
  # stand in them as raw bytes, pointers included.
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 TEST_LIST ${name}_TESTS NO_PRETTY_VALUES
                       PROPERTIES TIMEOUT ${ARG_TIMEOUT})
  # gtest_discover_tests flattens lists among its properties, and a second label would be lost: so
  # labels are set when CTest reads the discovered tests.
  set(labels_file ${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake)
  file(WRITE ${labels_file} "if(${name}_TESTS)\n  set_tests_properties(\${${name}_TESTS} "
                            "PROPERTIES LABELS \"${ARG_LABELS}\")\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${labels_file})
endfunction()
