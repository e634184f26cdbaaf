/* What the tools are called, described as, and take, and what is hinted at: words for a model, in tables. */
#include "tools_data.h"

#define TOOLS_ONE_CALL                                                                                   \
	"\n\nMake ONE call a turn: put everything that belongs to a step into one script. Calls of one " \
	"turn run in "                                                                                   \
	"the order they came, and each is a step that can be taken back."

const char ntr_tools_terminal[] =
        "Run a bash script in the workspace, a directory with a history at %s. It is a real bash: pipes, "
        "redirections, heredocs, loops, and every program of the machine. Files, the working directory and "
        "exported variables are still there at the next call; functions, aliases and unexported variables "
        "are "
        "not. There is no terminal and no one to answer a prompt: pass -y, --yes and the like, and use "
        "file_edit "
        "in an editor's place.\n\n"
        "FINDING AND READING is what this tool is for: `grep -rn 'name' src` finds (-A3 -B3 show what stands "
        "around), `sed -n '120,160p' file` shows a part, `cat -n file` the whole with line numbers, `ls "
        "-la`, "
        "`find`. To change a file use file_edit, for a new one file_write: they need no quoting.\n\n"
        "Long output is cut at the end: print what you need (`| head -50`, `| tail -20`, `grep`). What takes "
        "long "
        "can go on in the background: `command > log 2>&1 &`." TOOLS_ONE_CALL;

const char ntr_tools_python_inside[] = "\n\nFor Python use `python3` in the script, best with a quoted "
                                       "heredoc: `python3 - <<'EOF' … EOF`. What it "
                                       "prints goes into pipes, and it reads pipes from sys.stdin. Code that "
                                       "is used again belongs into a file.";

const char ntr_tools_python[] =
        "Run Python in the workspace, with the same files and working directory as the terminal. The value "
        "of a "
        "last bare expression is shown, as in a notebook: end with `df.head()` rather than print. Each call "
        "is a "
        "fresh process: variables and imports are gone after it. What stays:\n"
        "- files: open(), pathlib and so on. To find something in files use the terminal's grep, to change "
        "one use "
        "file_edit.\n"
        "- code: put what is used again into modules and import it from the workspace's root, %s: `from "
        "helpers.text import clean` for helpers/text.py (no __init__.py is needed).";
const char ntr_tools_cache[] = "\n- cache: a dict for data: `cache['rows'] = rows`. It holds whatever can be "
                               "pickled, is kept and taken back "
                               "together with the files, and changes made inside a value count. In the "
                               "terminal: `ntr cache get rows`.";
const char ntr_tools_objects[] = "\n- these objects of the program around you are there by name: %s. Call "
                                 "their methods directly; they are "
                                 "live, and what they do is not taken back with the files.";
const char ntr_tools_modules[] = "\n- modules beside the standard library: %s.";
const char ntr_tools_offline[] = "\n- there is NO network: do not try to download or install anything.";
const char ntr_tools_ui[] =
        "\n\nTo show something to the user assign `ui = {'name': value}` at top level: a figure (plotly, "
        "matplotlib), a DataFrame, an image, HTML, a list of cards ({'label', 'value', 'sublabel'}). Each "
        "becomes a "
        "file in %s/ui, and the result tells its path.";
const char ntr_tools_python_end[] = TOOLS_ONE_CALL;

const struct ntr_tool_data ntr_tool_data[] = {
        {
                .name = "terminal",
                .title = "Terminal",
                .schema = "{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"string\","
                          "\"description\":"
                          "\"A bash script, of one line or many.\"}},\"required\":[\"command\"],"
                          "\"additionalProperties\":false}",
                .destructive = true,
                .open_world = true,
        },
        {
                .name = "run_python",
                .title = "Python",
                .schema =
                        "{\"type\":\"object\",\"properties\":{\"code\":{\"type\":\"string\",\"description\":"
                        "\"Python source.\"}},\"required\":[\"code\"],\"additionalProperties\":false}",
                .destructive = true,
                .open_world = true,
        },
        {
                .name = "file_write",
                .title = "Write a file",
                .description = "Write a whole file of the workspace: made where it is not there, with the "
                               "directories "
                               "that lead to it; replaced where it is, keeping its mode and owner. Use it "
                               "for anything of "
                               "several lines (sources, pages, data) instead of a heredoc with tricky "
                               "quoting. To change a "
                               "part of a file use file_edit. Several files may be written in one turn.",
                .schema =
                        "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\",\"description\":"
                        "\"Relative to the working directory, or absolute inside the "
                        "workspace.\"},\"content\":{"
                        "\"type\":\"string\",\"description\":\"The whole content.\"}},\"required\":[\"path\","
                        "\"content\"],\"additionalProperties\":false}",
                .destructive = true,
                .idempotent = true,
        },
        {
                .name = "file_edit",
                .title = "Edit a file",
                .description = "Replace a text in a file of the workspace. old_string has to be quoted "
                               "EXACTLY as the file "
                               "has it, blanks and indent included, and has to be there once: quote enough "
                               "of what stands "
                               "around it, or set replace_all to change every occurrence. Look at the place "
                               "first (`sed -n`, "
                               "`grep -n`). Prefer this to sed and to rewriting a file. Edits of different "
                               "files may go into "
                               "one turn; edits of the same file go one after another.",
                .schema =
                        "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\",\"description\":"
                        "\"Relative to the working directory, or absolute inside the "
                        "workspace.\"},\"old_string\":{"
                        "\"type\":\"string\",\"description\":\"The text to replace, as the file has it.\"},"
                        "\"new_string\":{\"type\":\"string\",\"description\":\"What takes its place.\"},"
                        "\"replace_all\":{\"type\":\"boolean\",\"default\":false,\"description\":\"Replace "
                        "every "
                        "occurrence.\"}},\"required\":[\"path\",\"old_string\",\"new_string\"],"
                        "\"additionalProperties\":false}",
                .destructive = true,
        },
        {
                .name = "view_image",
                .title = "View an image",
                .description =
                        "Look at an image of the workspace: a plot that was saved, a screenshot, a picture. "
                        "Takes png, jpeg, gif and webp of up to 10,000,000 bytes and returns the image "
                        "itself.",
                .schema =
                        "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\",\"description\":"
                        "\"Relative to the working directory, or absolute inside the workspace.\"}},"
                        "\"required\":[\"path\"],\"additionalProperties\":false}",
                .read_only = true,
                .idempotent = true,
                .images = true,
        },
        {
                .name = "history",
                .title = "History",
                .description =
                        "List the latest steps of the workspace, newest first: id, time, what ran, how it "
                        "ended, and how many paths it created (+), modified (~) and deleted (-). The ids are "
                        "for "
                        "diff, fork and rollback.",
                .schema =
                        "{\"type\":\"object\",\"properties\":{\"limit\":{\"type\":\"integer\",\"minimum\":1,"
                        "\"maximum\":1000,\"default\":20}},\"additionalProperties\":false}",
                .read_only = true,
                .idempotent = true,
                .versions = true,
        },
        {
                .name = "diff",
                .title = "Diff",
                .description =
                        "Show as a patch what differs between two states of the workspace. Without "
                        "arguments: "
                        "what the last step changed. from and to are ids of history, ~N (N steps back) or "
                        "HEAD; path narrows it to a file or directory.",
                .schema =
                        "{\"type\":\"object\",\"properties\":{\"from\":{\"type\":\"string\",\"description\":"
                        "\"The older state; ~1 without.\"},\"to\":{\"type\":\"string\",\"description\":\"The "
                        "newer "
                        "state; HEAD without.\"},\"path\":{\"type\":\"string\"}},"
                        "\"additionalProperties\":false}",
                .read_only = true,
                .idempotent = true,
                .versions = true,
        },
        {
                .name = "fork",
                .title = "Fork",
                .description = "Make a copy of the workspace under a name of its own, to try something "
                               "there. It costs "
                               "nothing whatever the size, and neither changes the other. You go on working "
                               "here; use "
                               "`ntr run -s NAME -c '…'` in the terminal to work in the fork.",
                .schema = "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"pattern\":"
                          "\"^[A-Za-z0-9_-][A-Za-z0-9_.-]*$\"},\"from\":{\"type\":\"string\",\"description\":"
                          "\"An id of "
                          "history or ~N; the present state without.\"}},\"required\":[\"name\"],"
                          "\"additionalProperties\":false}",
                .versions = true,
        },
        {
                .name = "rollback",
                .title = "Rollback",
                .description =
                        "Take the whole workspace (files, cache, working directory, variables) back to an "
                        "earlier state: steps back, or to an id of history. Background processes end. What "
                        "is "
                        "left behind stays in the history, and can be rolled back to in its turn.",
                .schema =
                        "{\"type\":\"object\",\"properties\":{\"steps\":{\"type\":\"integer\",\"minimum\":1},"
                        "\"commit\":{\"type\":\"string\",\"description\":\"An id of history.\"}},"
                        "\"additionalProperties\":false}",
                .destructive = true,
                .versions = true,
        },
        {.name = NULL},
};

/* The first that fits counts: the special ones come first. */
const struct ntr_tool_hint_row ntr_tool_hints[] = {
        {127, "python: command not found", "it is called python3 here"},
        {127, "pip: command not found", "use `python3 -m pip`, in a virtual environment of the workspace"},
        {127, "pip3: command not found", "use `python3 -m pip`, in a virtual environment of the workspace"},
        {127, "rg: command not found", "use `grep -rn PATTERN DIR`"},
        {127, "fd: command not found", "use `find DIR -name PATTERN`"},
        {127, "vim: command not found", "there is no terminal for an editor: use file_edit and file_write"},
        {127, "nano: command not found", "there is no terminal for an editor: use file_edit and file_write"},
        {127, "sudo: command not found", "there is no sudo here: run it without"},
        {127, "command not found", "there is no such program here; `command -v NAME` tells what there is"},
        {126, "Permission denied",
                "it is not executable: `chmod +x FILE`, or name its interpreter, as in `bash FILE`"},
        {137, "", "it was killed, mostly for want of memory: work on the data in pieces"},
        {-1, "externally-managed-environment",
                "make a virtual environment in the workspace: `python3 -m venv .venv && .venv/bin/pip "
                "install NAME`"},
        {-1, "ModuleNotFoundError: No module named",
                "the module is neither installed nor in the directory the program was started in; run it "
                "from the "
                "workspace's root (`python3 -m PACKAGE.MODULE`) or install it into a virtual environment"},
        {-1, "Temporary failure in name resolution",
                "there is no network here: work with what the workspace has"},
        {-1, "Could not resolve host", "there is no network here: work with what the workspace has"},
        {-1, "Network is unreachable", "there is no network here: work with what the workspace has"},
        {-1, "No space left on device", "the disk is full: delete what is not needed, then try again"},
        {-1, "Argument list too long", "pass the names through a pipe: `find … -print0 | xargs -0 COMMAND`"},
        {-1, "not a git repository",
                "`git init` makes one; the workspace's own history does without git, and takes back any "
                "step"},
        {-1, "here-document at line",
                "the end marker has to stand alone at the beginning of a line; file_write needs no quoting"},
        {-1, "unexpected EOF while looking for matching",
                "a quote is not closed; for texts of several lines use file_write, or a quoted heredoc "
                "(<<'EOF')"},
        {-1, "the input device is not a TTY", "there is no terminal: leave out -t and -it"},
        {-1, "Inappropriate ioctl for device",
                "the program wants a terminal, and there is none: use its batch options"},
        {-1, "terminal is required",
                "the program wants a terminal, and there is none: use its batch options"},
        {0, NULL, NULL},
};
