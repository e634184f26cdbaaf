# bash completion for ntr(1)

# Sessions, only where a daemon already runs: completing must not start one.
_ntr_sessions()
{
	ntr daemon status >/dev/null 2>&1 || return
	ntr sessions --json 2>/dev/null | sed -n 's/^{"name":"\([^"]*\)".*/\1/p'
}

_ntr()
{
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} verb= i
	local common='-s --session --store --json --help'
	local verbs='new fork sessions rename rm run tool py ps stop log show diff status commit discard rollback ls cat put get
		cache export mount umount daemon doctor fsck version help'

	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		-s | --session | --store) ((i++)) ;;
		-*) ;;
		*)
			verb=${COMP_WORDS[i]}
			break
			;;
		esac
	done
	COMPREPLY=()
	case $prev in
	-s | --session)
		mapfile -t COMPREPLY < <(compgen -W "$(_ntr_sessions)" -- "$cur")
		return
		;;
	--store | --dir | --cwd)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		return
		;;
	--tar | --from)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--durability)
		mapfile -t COMPREPLY < <(compgen -W 'fsync relaxed' -- "$cur")
		return
		;;
	esac
	if [[ -z $verb ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$verbs $common --version" -- "$cur")
		return
	fi
	if [[ $cur == -* ]]; then
		local own=
		case $verb in
		new) own='--from --durability --root --rung --mount' ;;
		run) own='-c --timeout --no-commit --env --cwd --mount --rm' ;;
		rm) own='--discard' ;;
		rollback) own='--steps --discard --force' ;;
		log) own='-n' ;;
		diff) own='--name-status --stat' ;;
		commit) own='-m --message' ;;
		ls) own='-l' ;;
		export) own='--dir --tar' ;;
		esac
		mapfile -t COMPREPLY < <(compgen -W "$own $common" -- "$cur")
		return
	fi
	case $verb in
	help) mapfile -t COMPREPLY < <(compgen -W "$verbs" -- "$cur") ;;
	daemon) mapfile -t COMPREPLY < <(compgen -W 'status stop' -- "$cur") ;;
	fork | rm | rename | mount | show | diff | rollback)
		if [[ $verb == mount && $prev != mount ]]; then
			compopt -o filenames
			mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		else
			mapfile -t COMPREPLY < <(compgen -W "$(_ntr_sessions)" -- "$cur")
		fi
		;;
	put | umount)
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		;;
	run)
		mapfile -t COMPREPLY < <(compgen -c -- "$cur")
		;;
	esac
}

complete -F _ntr ntr
