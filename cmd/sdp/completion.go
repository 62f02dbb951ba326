package main

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
)

func completionCommand() *command {
	c := &command{
		name:  "completion",
		usage: "bash|zsh|fish",
		short: "print what lets a shell complete the tool's commands and flags",
		long: `
Completion prints a script for a shell, which completes commands and their flags:

	source <(sdp completion bash)            # in ~/.bashrc
	source <(sdp completion zsh)             # in ~/.zshrc, after compinit
	sdp completion fish | source             # in ~/.config/fish/config.fish`,
	}
	c.run = func(args []string) error {
		args, err := parseFlags(c, args, func(*flag.FlagSet) {})
		if err != nil {
			return err
		}
		if len(args) != 1 || completions[args[0]] == "" {
			return misuse(c.name, "want one of %s", strings.Join(slices.Sorted(maps.Keys(completions)), ", "))
		}
		fmt.Fprint(stdout, completions[args[0]])
		return nil
	}
	return c
}

const bashCompletion = `_sdp() {
	local word="${COMP_WORDS[COMP_CWORD]}"
	if [ "$COMP_CWORD" -eq 1 ]; then
		COMPREPLY=($(compgen -W "help $(sdp help | sed -n 's/^ *\([a-z-]*\)   .*/\1/p')" -- "$word"))
	elif [ "${COMP_WORDS[1]}" = help ]; then
		COMPREPLY=($(compgen -W "$(sdp help | sed -n 's/^ *\([a-z-]*\)   .*/\1/p')" -- "$word"))
	elif [ "${word#-}" != "$word" ]; then
		COMPREPLY=($(compgen -W "$(sdp help "${COMP_WORDS[1]}" | sed -n 's/^  \(-[a-z-]*\).*/\1/p')" -- "$word"))
	fi
}
complete -o default -F _sdp sdp
`

var completions = map[string]string{
	"bash": bashCompletion,
	"zsh":  "autoload -U +X bashcompinit && bashcompinit\n" + bashCompletion,
	"fish": `complete -c sdp -n __fish_use_subcommand -f -a "help (sdp help | string match -r '^ *([a-z-]+)   ' -g)"
complete -c sdp -n 'not __fish_use_subcommand' -a "(sdp help (commandline -opc)[2] | string match -r '^  (-[a-z-]+)' -g)"
`,
}
