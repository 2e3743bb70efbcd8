# One table at the end of configuration: each feature with the version found or why it is off.

# penstock_report(FEATURE text): one line of the table.
function(penstock_report feature text)
  string(LENGTH "${feature}" length)
  set(padding "")
  if(length LESS 16)
    math(EXPR count "16 - ${length}")
    string(REPEAT " " ${count} padding)
  endif()
  set_property(GLOBAL APPEND_STRING PROPERTY PENSTOCK_SUMMARY "  ${feature}${padding}${text}\n")
endfunction()

function(penstock_summary)
  get_property(lines GLOBAL PROPERTY PENSTOCK_SUMMARY)
  message(STATUS "Penstock ${PROJECT_VERSION}, ${CMAKE_BUILD_TYPE}\n${lines}")
endfunction()
