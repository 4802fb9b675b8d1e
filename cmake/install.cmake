# What `cmake --install` and the packages bring. Components: runtime (library, command, dissector)
# and dev (headers, static library, pkg-config, CMake package, manual pages of the calls).
if(NOT DEFINED CMAKE_INSTALL_LIBDIR AND CMAKE_LIBRARY_ARCHITECTURE AND EXISTS /etc/debian_version)
  set(CMAKE_INSTALL_LIBDIR lib/${CMAKE_LIBRARY_ARCHITECTURE} CACHE PATH "Folder of libraries")
endif()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS softmetaroce EXPORT softmetaroceTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev)
install(TARGETS softmetaroce_static EXPORT softmetaroceTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
install(TARGETS metaroce RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
install(FILES ${PROJECT_BINARY_DIR}/share/metaroce.lua
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/wireshark/plugins COMPONENT runtime)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/metaroce
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)

# Manual pages; a page that describes several calls is found under the name of each.
file(GLOB command_pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/man/*.1)
file(GLOB call_pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/man/*.3)
install(FILES ${command_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT runtime)
install(FILES ${call_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man3 COMPONENT dev)
set(aliases)
foreach(page IN LISTS call_pages)
  get_filename_component(file ${page} NAME)
  file(STRINGS ${page} names REGEX "^\\.Nm mr_")
  foreach(line IN LISTS names)
    string(REGEX REPLACE "^\\.Nm (mr_[a-z_]+).*" "\\1" name "${line}")
    if(NOT "${name}.3" STREQUAL file)
      file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/man/${name}.3 CONTENT ".so man3/${file}\n")
      list(APPEND aliases ${PROJECT_BINARY_DIR}/man/${name}.3)
    endif()
  endforeach()
endforeach()
install(FILES ${aliases} DESTINATION ${CMAKE_INSTALL_MANDIR}/man3 COMPONENT dev)

# pkg-config and find_package; both work from wherever the tree was put.
file(RELATIVE_PATH up /x/${CMAKE_INSTALL_LIBDIR}/pkgconfig /x)
string(REGEX REPLACE "/$" "" up "${up}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/install/softmetaroce.pc.in
  ${PROJECT_BINARY_DIR}/softmetaroce.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/softmetaroce.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/softmetaroce)
install(EXPORT softmetaroceTargets NAMESPACE softmetaroce:: DESTINATION ${package} COMPONENT dev)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/install/softmetaroceConfig.cmake.in
  ${PROJECT_BINARY_DIR}/softmetaroceConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/softmetaroceConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/softmetaroceConfig.cmake
  ${PROJECT_BINARY_DIR}/softmetaroceConfigVersion.cmake DESTINATION ${package} COMPONENT dev)

# `cpack` in the build folder makes two Debian packages.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME softmetaroce)
set(CPACK_PACKAGE_VENDOR "softmetaroce")
set(CPACK_PACKAGE_CONTACT "The softmetaroce developers <softmetaroce@example.org>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY
  "messages and remote memory access over many network paths")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL runtime dev)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME softmetaroce)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION net)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libsoftmetaroce-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "softmetaroce (= ${PROJECT_VERSION})")
include(CPack)
