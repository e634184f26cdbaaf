# cmake -DOUT=FILE.c -DBOOT=FILE -DMODULES=A;B… -P embed.cmake: the runner's Python as two C arrays.
function(to_array name hex)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(REPEAT "0x..," 16 line)
  string(REGEX REPLACE "(${line})" "\\1\n" bytes "${bytes}")
  set(${name} "${bytes}" PARENT_SCOPE)
endfunction()
file(READ "${BOOT}" boot HEX)
set(text "")
foreach(path ${MODULES})
  get_filename_component(name "${path}" NAME_WE)
  string(HEX "#:module ${name}\n" head)
  file(READ "${path}" body HEX)
  string(APPEND text "${head}${body}")
endforeach()
to_array(boot_bytes "${boot}")
to_array(text_bytes "${text}")
file(WRITE "${OUT}" "/* Made of exec/runner by cmake/embed.cmake. */
#include \"init_py.h\"

const unsigned char ntr_runner_boot[] = {
${boot_bytes}0};
const unsigned char ntr_runner_text[] = {
${text_bytes}0};
const size_t ntr_runner_text_len = sizeof ntr_runner_text - 1;
")
