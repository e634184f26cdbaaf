# Run with -c by ntr-init: makes the package _ntr of the text in a descriptor, then is the zygote.
# argv: the control socket's descriptor, the text's descriptor, modules to preload.
import sys

if sys.version_info < (3, 9):
    sys.exit("Python 3.9 or newer is needed, this is %d.%d" % sys.version_info[:2])

import types


def boot():
    with open(int(sys.argv[2]), encoding="utf-8") as f:
        parts = f.read().split("#:module ")[1:]
    package = types.ModuleType("_ntr")
    package.__path__ = []
    sys.modules["_ntr"] = package
    for part in parts:
        name, _, text = part.partition("\n")
        module = types.ModuleType("_ntr." + name)
        module.__package__ = "_ntr"
        module.__file__ = "<ntr>/%s.py" % name
        sys.modules[module.__name__] = module
        setattr(package, name, module)
        exec(compile(text, module.__file__, "exec"), module.__dict__)
    return package.zygote


boot().main(int(sys.argv[1]), sys.argv[3:])
