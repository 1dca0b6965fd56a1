package tenant

import (
	"maps"
	"slices"
	"strconv"

	"confine/internal/leak"
)

// modelKeys are variables in which an agent looks for the key of its model, with
// the kinds of keys that may stand there. As long as the gateway does not hold
// that key it is the one secret that an agent may have: it writes nowhere. The
// gate and the setup need no model.
var modelKeys = map[string]bool{
	"ANTHROPIC_API_KEY": true, "ANTHROPIC_AUTH_TOKEN": true, "CLAUDE_CODE_OAUTH_TOKEN": true, "OPENAI_API_KEY": true, "CODEX_API_KEY": true,
	"GEMINI_API_KEY": true, "GOOGLE_API_KEY": true, "MISTRAL_API_KEY": true, "OPENROUTER_API_KEY": true, "DEEPSEEK_API_KEY": true,
	"XAI_API_KEY": true, "GROQ_API_KEY": true, "AZURE_OPENAI_API_KEY": true,
}

var modelKeyKinds = map[string]bool{"Anthropic key": true, "OpenAI key": true, "Google API key": true}

// What to do instead.
const (
	mendGate  = "the gate runs what the agent wrote and gets no secret. Take it out; a test that wants any value can set a made-up one in run"
	mendSetup = "the setup runs what the repository and its packages hold and gets no secret. Take it out"
	mendAgent = "the agent could send it anywhere it may reach, and gets no credential but the key of its model, under that variable's usual name such as ANTHROPIC_API_KEY. Take it out; the engine does what needs the credential"
)

// checkSecrets finds secrets that would be brought to where untrusted programs
// run. No message shows what was written.
func checkSecrets(c *Config, p *reader) {
	for i := range c.Gate {
		at := "gate." + c.Gate[i].Name
		if p.sound(at) {
			secretVariables(p, at+".env", c.Gate[i].Env, secretOptions{mend: mendGate})
			secretText(p, at+".run", c.Gate[i].Run, mendGate)
		}
	}
	if p.sound("setup") {
		for i, run := range c.Setup.Run {
			secretText(p, "setup.run["+strconv.Itoa(i)+"]", run, mendSetup)
		}
	}
	if p.sound("agent") {
		secretVariables(p, "agent.env", c.Agent.Env, secretOptions{mend: mendAgent, modelKeys: true})
		for i, arg := range c.Agent.Command {
			secretText(p, "agent.command["+strconv.Itoa(i)+"]", arg, mendAgent)
		}
	}
}

type secretOptions struct {
	mend string
	// modelKeys may be there.
	modelKeys bool
}

func secretVariables(p *reader, at string, variables map[string]string, o secretOptions) {
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		value, here := variables[name], inside(at, shownKey(name))
		model := o.modelKeys && modelKeys[name]
		hit, found := leak.Variable(name, value)
		switch {
		case model && (!found || hit.Weak || modelKeyKinds[hit.Rule]):
		case !model && leak.SecretName(name) && !switches[value]:
			p.blame(here, "", "is meant for a secret, by its name: %s", o.mend)
		case found:
			p.blame(here, "", "holds what looks like a secret (%s; what was written is not shown): %s", hit.Rule, o.mend)
		}
	}
}

// switches are values that are no secret under any name, as in USE_TOKEN: "false".
var switches = map[string]bool{"true": true, "false": true, "on": true, "off": true, "yes": true, "no": true, "0": true, "1": true}

// secretText looks at a command, where only forms that leave no doubt count:
// made-up values of tests have their place there.
func secretText(p *reader, at, text, mend string) {
	for _, hit := range leak.NewScanner(nil).Scan(nil, []byte(text)) {
		if !hit.Weak {
			p.blame(at, "", "holds what looks like a secret (%s; what was written is not shown): %s", hit.Rule, mend)
			return
		}
	}
}
