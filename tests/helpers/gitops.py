#!/usr/bin/env python3
"""gitops.py SEED STEP: one step of random work in a git repository, as a bash script that says what came of it."""
import random
import sys

seed, step = int(sys.argv[1]), int(sys.argv[2])
r = random.Random(seed * 100003 + step)
BRANCHES = ["main", "b1", "b2", "b3"]


def name():
    return r.choice(["src/f%d", "src/deep/g%d", "docs/h%d", "top%d", "with space/s%d"]) % r.randrange(8)


def edit():
    n = name()
    return r.choice([
        f"mkdir -p '{n}.d/..' && echo {step} >>'{n}'",
        f"mkdir -p \"$(dirname '{n}')\"; seq {r.randrange(1, 400)} >'{n}'",
        f"sed -i '2s/.*/edited {step}/' '{n}'",
        f"sed -i 's/^{r.randrange(1, 20)}$/changed {step}/' '{n}'",
        f"cp '{n}' new{step}; mv new{step} '{n}'",
        f"rm -f '{n}'",
        f"chmod $([ -x '{n}' ] && echo -x || echo +x) '{n}'",
        f"rm -f '{n}'; mkdir -p \"$(dirname '{n}')\"; ln -sfn {step} '{n}'",
        f"git mv -f '{n}' '{name()}'",
        f"rm -rf \"$(dirname '{n}')\" || true",
    ])


def edits():
    return "; ".join(f"({edit()}) 2>/dev/null" for _ in range(r.randrange(1, 6)))


def commit():
    return f"{edits()}; git add -A; git commit -qm {step}"


def branch():
    return r.choice(BRANCHES)


OPS = [
    (4, edits), (6, commit),
    (3, lambda: f"git checkout -q {branch()} 2>/dev/null"),
    (1, lambda: f"git checkout -q -B {branch()} 2>/dev/null"),
    (2, lambda: f"git checkout -qf {branch()}"),
    (2, lambda: f"git merge -q --no-edit {branch()} >/dev/null 2>&1 || git merge --abort 2>/dev/null"),
    (2, lambda: f"git rebase -q {branch()} >/dev/null 2>&1 || git rebase --abort 2>/dev/null"),
    (1, lambda: f"git rebase -q {branch()} >/dev/null 2>&1; git status --porcelain | head -n 5; git rebase --skip >/dev/null 2>&1; git rebase --abort 2>/dev/null"),
    (2, lambda: f"git cherry-pick {branch()} >/dev/null 2>&1 || git cherry-pick --abort 2>/dev/null"),
    (1, lambda: "git revert --no-edit HEAD >/dev/null 2>&1 || git revert --abort 2>/dev/null"),
    (3, lambda: f"{edits()}; git stash -qu"),
    (2, lambda: "git stash pop -q >/dev/null 2>&1 || { git checkout -qf; git clean -fdxq; git stash drop -q 2>/dev/null; }"),
    (1, lambda: "git gc -q --prune=now"), (1, lambda: "git repack -qadf"), (1, lambda: "git pack-refs --all"),
    (1, lambda: "git reflog expire --expire=now --all; git prune --expire=now"),
    (1, lambda: "git reset -q --hard HEAD~1 2>/dev/null"), (1, lambda: "git reset -q --mixed HEAD~1 2>/dev/null"),
    (1, lambda: "git clean -fdxq"), (1, lambda: "git restore . ; git restore --staged ."),
    (1, lambda: f"git worktree add -qf --detach ../w {branch()}; (cd ../w; {commit()}; git log --oneline -n 2); git worktree remove -f ../w"),
    (1, lambda: f"git worktree add -qf --detach ../kept {branch()} 2>/dev/null || git -C ../kept status --porcelain"),
    (1, lambda: "git clone -q . ../c && git -C ../c fsck 2>&1 && git -C ../c log --oneline -n 1; rm -rf ../c"),
    (1, lambda: "git fsck --full --strict 2>&1 | grep -v dangling; git diff --stat | tail -n 1"),
    (1, lambda: f"git update-index -q --refresh >/dev/null; git sparse-checkout set src >/dev/null 2>&1; ls; git sparse-checkout disable; ls"),
    (1, lambda: "git bisect start -q HEAD HEAD~3 >/dev/null 2>&1; git bisect run test -e src/f1 >/dev/null 2>&1; git bisect reset -q 2>/dev/null"),
    (1, lambda: f"git archive {branch()} | tar -t | sort | md5sum"),
    (1, lambda: f"git tag -f t{step} >/dev/null; git notes add -f -m {step}"),
    (1, lambda: f"git format-patch -q -o ../p HEAD~1 2>/dev/null; git checkout -q --detach HEAD~1 2>/dev/null && git am -q ../p/* >/dev/null 2>&1 || git am --abort 2>/dev/null; rm -rf ../p"),
]
script = "\n".join(r.choices([f for _, f in OPS], [w for w, _ in OPS])[0]() + "; echo $?" for _ in range(r.randrange(1, 5)))
print(script)
print("git status --porcelain=v1 -b; git log --oneline -n 1; git stash list | wc -l; git diff | md5sum; ls -A . ..")
