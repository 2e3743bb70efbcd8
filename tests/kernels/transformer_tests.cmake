set(transformer_checks transformer_norm_checks.cpp transformer_attention_checks.cpp
                       transformer_pointwise_checks.cpp transformer_vocabulary_checks.cpp)
penstock_test(transformer_accuracy_test SOURCES transformer_accuracy_test.cpp ${transformer_checks}
              LINKS penstock_kernels_cpu LABELS unit kernels)
penstock_test(transformer_isa_test SOURCES transformer_isa_test.cpp transformer_scenarios.cpp
              LINKS penstock_kernels_cpu LABELS unit kernels)
penstock_test(transformer_mutant_test
              SOURCES transformer_mutant_test.cpp transformer_scenarios.cpp ${transformer_checks}
              LINKS penstock_kernels_cpu LABELS unit kernels WITHOUT address)
