# SPDX-License-Identifier: Apache-2.0
# cmake --install, and Debian packages by cpack: `blockswap` (daemon and client) and `blockswap-worker`.
include(GNUInstallDirs)
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # install and pack what is built, tests or not

# The worker's LibTorch: what deploy/install-torch.sh fetches, never a path of the build machine.
set(BLOCKSWAP_SITE_DIR lib/blockswap/site)
install(TARGETS blockswapd blockswap RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT service)
if(TARGET blockswap-worker)
  set_target_properties(blockswap-worker PROPERTIES
    INSTALL_RPATH "$ORIGIN/../${BLOCKSWAP_SITE_DIR}/torch/lib" INSTALL_REMOVE_ENVIRONMENT_RPATH ON)
  install(TARGETS blockswap-worker RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT worker)
  install(PROGRAMS deploy/install-torch.sh DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME blockswap-install-torch
    COMPONENT worker)
  install(FILES deploy/requirements.lock DESTINATION ${CMAKE_INSTALL_DATADIR}/blockswap COMPONENT worker)
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/blockswap-worker COMPONENT worker)
endif()
set(_written ${PROJECT_BINARY_DIR}/share)
install(FILES ${_written}/blockswap.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT service)
install(FILES ${_written}/blockswap.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME blockswap
  COMPONENT service)
install(FILES ${_written}/_blockswap DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT service)
install(FILES ${_written}/blockswap.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT service)
install(FILES README.md CHANGELOG.md SECURITY.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT service)
install(DIRECTORY deploy/examples deploy/grafana deploy/prometheus DESTINATION ${CMAKE_INSTALL_DOCDIR}
  COMPONENT service PATTERN __pycache__ EXCLUDE)
install(FILES proto/blockswap/v1/training.proto proto/blockswap/v1/admin.proto proto/blockswap/v1/job.proto
              proto/blockswap/v1/event.proto
  DESTINATION ${CMAKE_INSTALL_DATADIR}/blockswap/proto/blockswap/v1 COMPONENT service)

# A prefix of /usr keeps its settings in /etc, any other below itself.
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(BLOCKSWAP_SYSCONFDIR /etc)
else()
  set(BLOCKSWAP_SYSCONFDIR ${CMAKE_INSTALL_FULL_SYSCONFDIR})
endif()
set(BLOCKSWAP_BINDIR ${CMAKE_INSTALL_FULL_BINDIR})
configure_file(deploy/systemd/blockswapd.service.in ${PROJECT_BINARY_DIR}/deploy/blockswapd.service @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/deploy/blockswapd.service DESTINATION lib/systemd/system COMPONENT service)
install(FILES deploy/systemd/blockswap.sysusers DESTINATION lib/sysusers.d RENAME blockswap.conf COMPONENT service)
install(FILES deploy/systemd/blockswapd.toml DESTINATION ${BLOCKSWAP_SYSCONFDIR}/blockswap COMPONENT service)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME blockswap)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "blockswap maintainers")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains models that do not fit on the GPU")
set(CPACK_PACKAGING_INSTALL_PREFIX ${CMAKE_INSTALL_PREFIX})
set(CPACK_OUTPUT_FILE_PREFIX packages)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL service worker)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${BLOCKSWAP_TORCH_ROOT}/lib")
set(CPACK_DEBIAN_SERVICE_PACKAGE_NAME blockswap)
set(CPACK_DEBIAN_SERVICE_PACKAGE_RECOMMENDS "blockswap-worker (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_SERVICE_DESCRIPTION "daemon and command line\n Takes training jobs over gRPC, plans their memory, and runs each in a worker.")
file(WRITE ${PROJECT_BINARY_DIR}/deploy/conffiles "${BLOCKSWAP_SYSCONFDIR}/blockswap/blockswapd.toml\n")
set(CPACK_DEBIAN_WORKER_PACKAGE_NAME blockswap-worker)
set(CPACK_DEBIAN_WORKER_PACKAGE_RECOMMENDS "python3-pip")  # of blockswap-install-torch
set(CPACK_DEBIAN_WORKER_DESCRIPTION "training process of blockswap\n Needs LibTorch, which blockswap-install-torch fetches.")
foreach(_script IN ITEMS postinst prerm postrm)
  configure_file(deploy/debian/${_script} ${PROJECT_BINARY_DIR}/deploy/service/${_script} COPYONLY)
endforeach()
foreach(_script IN ITEMS postinst postrm)
  configure_file(deploy/debian/${_script}-worker ${PROJECT_BINARY_DIR}/deploy/worker/${_script} COPYONLY)
endforeach()
set(CPACK_DEBIAN_SERVICE_PACKAGE_CONTROL_EXTRA
  ${PROJECT_BINARY_DIR}/deploy/service/postinst ${PROJECT_BINARY_DIR}/deploy/service/prerm
  ${PROJECT_BINARY_DIR}/deploy/service/postrm ${PROJECT_BINARY_DIR}/deploy/conffiles)
set(CPACK_DEBIAN_WORKER_PACKAGE_CONTROL_EXTRA
  ${PROJECT_BINARY_DIR}/deploy/worker/postinst ${PROJECT_BINARY_DIR}/deploy/worker/postrm)
include(CPack)
