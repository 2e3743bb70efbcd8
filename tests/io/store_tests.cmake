penstock_test(io_slot_table_test SOURCES slot_table_test.cpp LINKS penstock_io)
penstock_test(io_store_format_test SOURCES store_format_test.cpp LINKS penstock_io)
penstock_test(io_store_test
  SOURCES manifest_encoder_test.cpp store_test.cpp store_damage_test.cpp store_drives_test.cpp
          store_fault_test.cpp store_lifetime_test.cpp store_lock_test.cpp store_origin_test.cpp
          store_pins_test.cpp store_posix_test.cpp store_spares_test.cpp store_verify_test.cpp
  LINKS penstock_io)
penstock_test(io_store_power_loss_test
  SOURCES store_power_loss_test.cpp store_ranks_power_loss_test.cpp
  LINKS penstock_io
  LABELS unit sim
  TIMEOUT 900
  WITHOUT thread)  # simulated: one thread
