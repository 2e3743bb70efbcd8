# What `cmake --install` copies: the program, the C library with its headers, and what finds it,
# as a CMake package and for pkg-config. All of it may be moved afterwards.
include(CMakePackageConfigHelpers)

set(package_directory ${CMAKE_INSTALL_LIBDIR}/cmake/penstock)
install(TARGETS penstock_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS penstock EXPORT penstock LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/penstock DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

# The library depends on nothing that its users must find, so the export is the whole package.
install(EXPORT penstock FILE penstockConfig.cmake NAMESPACE penstock::
        DESTINATION ${package_directory})
set(version_file ${PROJECT_BINARY_DIR}/penstockConfigVersion.cmake)
write_basic_package_version_file(${version_file} COMPATIBILITY SameMinorVersion)
install(FILES ${version_file} DESTINATION ${package_directory})

set(pc_directory ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH prefix_from_pc /${pc_directory} /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/penstock.pc.in ${PROJECT_BINARY_DIR}/penstock.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/penstock.pc DESTINATION ${pc_directory})
