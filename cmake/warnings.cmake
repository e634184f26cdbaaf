# Warnings are errors, with gcc and clang alike.
add_compile_options(
  -Wall -Wextra -Werror=all -Werror=extra -Werror=shadow -Werror=conversion -Werror=sign-conversion
  -Werror=undef -Werror=strict-prototypes -Werror=old-style-definition -Werror=missing-prototypes
  -Werror=missing-declarations -Werror=implicit-function-declaration -Werror=incompatible-pointer-types
  -Werror=int-conversion -Werror=return-type -Werror=uninitialized -Werror=format=2 -Werror=format-security
  -Werror=write-strings -Werror=cast-qual -Werror=pointer-arith -Werror=nested-externs -Werror=redundant-decls
  -Werror=vla -Werror=switch -Werror=implicit-fallthrough -Werror=unused -Werror=null-dereference
  -Wno-missing-field-initializers -Wno-sign-compare)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-Werror=logical-op -Werror=duplicated-cond)
endif()
# Sanitizers and -O0 make gcc's flow analysis guess; the optimised builds check.
if(NTR_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
  add_compile_options(-Wno-error=null-dereference -Wno-null-dereference -Wno-error=maybe-uninitialized
    -Wno-maybe-uninitialized)
endif()
add_compile_options(-fstack-protector-strong -fno-strict-aliasing)
