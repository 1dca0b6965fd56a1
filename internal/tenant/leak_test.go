package tenant

import (
	"strings"
	"testing"
)

// credentials of the forms that issuers publish, put together so that no scanner
// takes this file for a leak.
var (
	githubToken  = "ghp_" + "0123456789abcdefghijABCDEFGHIJ012345"
	awsSecret    = "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCYzzzzzzzKEY"
	anthropicKey = "sk-ant-" + "api03-q8Zr2Lx9Tn4Vb7Kc1Wm5q8Zr2Lx9"
)

// problemAt gives the problem of a field, after a look that no problem shows
// what was written.
func problemAt(t *testing.T, problems Problems, field string) *Problem {
	t.Helper()
	for _, secret := range []string{githubToken, awsSecret, anthropicKey} {
		if strings.Contains(problems.Error(), secret[4:]) {
			t.Fatalf("a secret is shown: %v", problems)
		}
	}
	for i := range problems {
		if problems[i].Field == field {
			return &problems[i]
		}
	}
	return nil
}

func TestNoSecretWhereUntrustedCodeRuns(t *testing.T) {
	base := "version: 1\ntenant: t\nrepo: {url: local:/srv/x}\nview: {host: true}\n"
	gate := func(env string) string {
		return base + "agent: {kind: command, command: [a]}\ngate: {t: {run: x, env: {" + env + "}}}\n"
	}
	agent := func(env string) string {
		return base + "agent: {kind: command, command: [a], env: {" + env + "}}\ngate: {t: {run: x}}\n"
	}
	setup := func(run string) string {
		return base + "agent: {kind: command, command: [a]}\nsetup: {run: [\"" + run + "\"]}\ngate: {t: {run: x}}\n"
	}
	for _, c := range []struct{ name, text, field, message string }{
		{"token by name", gate("GITHUB_TOKEN: abc"), "gate.t.env.GITHUB_TOKEN", "by its name"},
		{"lower case", gate("github_token: abc"), "gate.t.env.github_token", "by its name"},
		{"aws", gate("AWS_SECRET_ACCESS_KEY: " + awsSecret), "gate.t.env.AWS_SECRET_ACCESS_KEY", "by its name"},
		{"password", gate("DB_PASSWORD: abc"), "gate.t.env.DB_PASSWORD", "by its name"},
		{"password in one word", gate("PGPASSWORD: abc"), "gate.t.env.PGPASSWORD", "by its name"},
		{"passwd", gate("ROOT_PASSWD: abc"), "gate.t.env.ROOT_PASSWD", "by its name"},
		{"credentials", gate("GOOGLE_APPLICATION_CREDENTIALS: /x"), "gate.t.env.GOOGLE_APPLICATION_CREDENTIALS", "by its name"},
		{"private key", gate("PRIVATE_KEY: abc"), "gate.t.env.PRIVATE_KEY", "by its name"},
		{"api key", gate("MY_API_KEY: abc"), "gate.t.env.MY_API_KEY", "by its name"},
		{"api key in one word", gate("APIKEY: abc"), "gate.t.env.APIKEY", "by its name"},
		{"access key", gate("ACCESS_KEY: abc"), "gate.t.env.ACCESS_KEY", "by its name"},
		{"by value", gate("HARMLESS: " + githubToken), "gate.t.env.HARMLESS", "GitHub token"},
		{"by value, quoted in text", gate("OPTIONS: \"--header=x:" + githubToken + "\""), "gate.t.env.OPTIONS", "GitHub token"},
		{"by value beside its name", gate("AWS_KEY: " + awsSecret), "gate.t.env.AWS_KEY", "AWS secret key"},
		{"in a URL", gate("DATABASE: \"postgres://app:S3cr3tPassw0rd@db.example.com/x\""), "gate.t.env.DATABASE", "password in a URL"},
		{"model key in the gate", gate("ANTHROPIC_API_KEY: abc"), "gate.t.env.ANTHROPIC_API_KEY", "by its name"},
		{"in a gate's command", base + "agent: {kind: command, command: [a]}\ngate: {t: {run: \"GH=" + githubToken + " x\"}}\n", "gate.t.run", "GitHub token"},
		{"in a setup's command", setup("export GH=" + githubToken), "setup.run[0]", "GitHub token"},
		{"in the agent's command", base + "agent: {kind: command, command: [a, " + githubToken + "]}\ngate: {t: {run: x}}\n", "agent.command[1]", "GitHub token"},
		{"agent token by name", agent("GITHUB_TOKEN: abc"), "agent.env.GITHUB_TOKEN", "by its name"},
		{"agent token by value", agent("HARMLESS: " + githubToken), "agent.env.HARMLESS", "GitHub token"},
		{"another secret under the name of a model key", agent("ANTHROPIC_API_KEY: " + githubToken), "agent.env.ANTHROPIC_API_KEY", "GitHub token"},
		{"model key under another name", agent("HARMLESS: " + anthropicKey), "agent.env.HARMLESS", "Anthropic key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			config, problems := Parse("t.yaml", []byte(c.text))
			problem := problemAt(t, problems, c.field)
			if config != nil || problem == nil {
				t.Fatalf("no problem at %s: %v", c.field, problems)
			}
			if !strings.Contains(problem.Message, c.message) || problem.Line < 5 || len(problems) != 1 {
				t.Errorf("%v", problems)
			}
		})
	}
	for name, text := range map[string]string{
		"neighbours": gate(`TOKENIZERS_PARALLELISM: "false", KEYBOARD: us, MAX_TOKENS: "4000", SECRETARY: ada, CGO_ENABLED: "0", MONKEY: "1", KEY_COUNT: "3"`),
		"off":        gate(`USE_TOKEN: "false", NO_PASSWORD: "true"`),
		"local URL":  gate(`DATABASE_URL: "postgres://postgres:postgres@localhost/test"`),
		"hashes":     gate(`COMMIT: "0123456789abcdef0123456789abcdef01234567"`),
		"model key":  agent("ANTHROPIC_API_KEY: " + anthropicKey + ", OPENAI_API_KEY: dummy"),
		"commands":   setup("go mod download"),
	} {
		if _, problems := Parse("t.yaml", []byte(text)); len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

func TestByteOrderMark(t *testing.T) {
	text := "version: 1\ntenant: t\nrepo: {url: local:/srv/x}\nview: {host: true}\nagent: {kind: command, command: [a]}\ngate: {t: {run: x}}\n"
	if _, problems := Parse("t.yaml", []byte(text)); len(problems) > 0 {
		t.Fatal(problems)
	}
	if _, problems := Parse("t.yaml", []byte("\ufeff"+text)); len(problems) > 0 {
		t.Errorf("a byte order mark at the start: %v", problems)
	}
	// Anywhere else it is part of a word that can't be seen.
	if _, problems := Parse("t.yaml", []byte("\ufeff\ufeff"+text)); !strings.Contains(problems.Error(), "byte order mark") {
		t.Errorf("two byte order marks: %v", problems)
	}
	utf16 := []byte{0xff, 0xfe, 'v', 0, 'e', 0}
	if _, problems := Parse("t.yaml", utf16); !strings.Contains(problems.Error(), "UTF-16") {
		t.Errorf("UTF-16: %v", problems)
	}
}
