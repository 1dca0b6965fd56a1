// Package codehost is what confine needs of the place where a repository, its
// issues and its pull requests live.
//
// It promises one vocabulary for all hosts: every call that changes something
// carries the state it was decided on, and answers with one of a few typed
// outcomes, so that a lost answer, a second caller or a push in between is told
// apart from a fault. A host that can't check that state itself checks it in git
// and pushes with a lease. Package codehosttest holds every host to this.
//
// It does not judge: who may trigger, what may merge and how text is shown are
// decided by the callers (engine, mergeauthority). Names, titles, bodies and
// reasons from a host are untrusted data, as the host holds them: quote, cap and
// clean them (package plaintext) before they reach a person, a log or a commit.
package codehost

import (
	"context"
	"time"

	"confine/internal/gitcmd"
)

// Host is one repository on a code host, seen as the engine's account.
//
// Errors are faults, *NotFoundError or *InvalidError; what the host decided is a
// Result. After an error it is not known whether a change was made: every
// changing call may be repeated with the same arguments and then answers
// Already.
type Host interface {
	// Repository reads the repository's name and default branch.
	Repository(ctx context.Context) (Repository, error)
	// Remote is where git reads or pushes, with a credential that allows no
	// more than access says where the host can narrow it.
	Remote(ctx context.Context, access Access) (gitcmd.Remote, error)

	// Issue reads an issue with its comments.
	Issue(ctx context.Context, number int) (Issue, error)
	// Claim takes an issue for one run, so that no other run works on it.
	Claim(ctx context.Context, c Claim) (ClaimResult, error)
	// Release gives up a claim that the same key holds. A claim that is not
	// there is Already released; another's is NotAllowed.
	Release(ctx context.Context, c Claim) (Result, error)

	// OpenPull finds or opens the pull request of a head branch.
	OpenPull(ctx context.Context, p NewPull) (Pull, Result, error)
	// Pull reads a pull request as it is now.
	Pull(ctx context.Context, number int) (Pull, error)

	// SetStatus writes one status of a commit. The newest status of a context
	// counts.
	SetStatus(ctx context.Context, s Status) (Result, error)
	// Statuses reads the newest status of each context of a commit. That there
	// is none says nothing good.
	Statuses(ctx context.Context, commit gitcmd.Hash) ([]Status, error)

	// UpsertComment writes the engine's comment that carries a marker, or
	// replaces its body. A comment of another account with that marker is left
	// alone.
	UpsertComment(ctx context.Context, c CommentEdit) (Comment, Result, error)

	// Protection reads what protects a branch.
	Protection(ctx context.Context, branch gitcmd.Ref) (Protection, error)
	// Merge lands a pull request.
	Merge(ctx context.Context, m MergeRequest) (MergeResult, error)
}

// Access says what a git remote is wanted for.
type Access string

// The kinds of access. The zero value is Read.
const (
	Read  Access = ""
	Write Access = "write"
)

// Permission is what an account may do with the repository. The zero value is
// not known and counts as none.
type Permission string

// The permissions, each including those before it.
const (
	PermissionNone  Permission = "none"
	PermissionRead  Permission = "read"
	PermissionWrite Permission = "write"
	PermissionAdmin Permission = "admin"
)

// AtLeast reports whether p includes q. Words that are no permission include
// nothing and are included in nothing.
func (p Permission) AtLeast(q Permission) bool {
	rank := func(p Permission) int {
		switch p {
		case "", PermissionNone:
			return 0
		case PermissionRead:
			return 1
		case PermissionWrite:
			return 2
		case PermissionAdmin:
			return 3
		}
		return -1
	}
	return rank(p) >= 0 && rank(q) >= 0 && rank(p) >= rank(q)
}

// Account is a person or a program on the host and what it may do now.
type Account struct {
	Name       string     `json:"name"`
	Permission Permission `json:"permission"`
}

// Repository is the repository as a whole.
type Repository struct {
	Name string `json:"name"`
	// DefaultBranch is the base where nothing else is asked for.
	DefaultBranch gitcmd.Ref `json:"default_branch"`
	// Account is who we are on this host.
	Account Account `json:"account"`
}

// Text is what somebody wrote, and since when it reads like this. Whoever
// vouches for it (a label, a trigger word) does so for the text as of that
// moment only: compare with ChangedAt.
type Text struct {
	Author    Account   `json:"author"`
	Body      string    `json:"body"`
	CreatedAt time.Time `json:"created_at"`
	ChangedAt time.Time `json:"changed_at"`
}

// VouchedAt reports whether the text was already as it is at that time. An
// unknown time vouches for nothing.
func (t Text) VouchedAt(when time.Time) bool {
	return !when.IsZero() && !t.ChangedAt.IsZero() && !t.ChangedAt.After(when)
}

// State is whether an issue or pull request is open.
type State string

// The states. Merged is a state of pull requests only.
const (
	Open   State = "open"
	Closed State = "closed"
	Merged State = "merged"
)

// Issue is an issue and its comments, oldest first.
type Issue struct {
	Number int    `json:"number"`
	Title  string `json:"title"`
	State  State  `json:"state"`
	Text
	Labels   []Label   `json:"labels"`
	Comments []Comment `json:"comments"`
	// ClaimedBy is the key of the run that holds the issue; "" if none does.
	ClaimedBy string `json:"claimed_by,omitempty"`
	// Revision changes whenever title, text, state, labels or comments do.
	Revision string `json:"revision"`
}

// Label is a label, who put it there and when.
type Label struct {
	Name string    `json:"name"`
	By   Account   `json:"by"`
	At   time.Time `json:"at"`
}

// Comment is one comment. Marker is set on comments of our own account only.
type Comment struct {
	ID string `json:"id"`
	Text
	Marker string `json:"marker,omitempty"`
}

// Claim asks for an issue on behalf of a run.
type Claim struct {
	Issue int
	// Key names the run.
	Key string
	// Revision is the revision of the issue that the decision to work on it was
	// made from.
	Revision string
}

// ClaimResult is the answer to a claim. Holder is the key that has the issue
// now; "" if no one has it.
type ClaimResult struct {
	Result
	Holder string
}

// NewPull describes a pull request to be found or opened.
type NewPull struct {
	// Key names what it is opened for. A second call with the same key gets
	// the same pull request, also when that was closed or merged meanwhile.
	Key  string
	Head gitcmd.Ref
	// ExpectedHead is the commit that the head branch must name.
	ExpectedHead gitcmd.Hash
	Base         gitcmd.Ref
	Title        string
	Body         string
	// Closes is the issue that its merge closes; 0 is none.
	Closes int
}

// Pull is a pull request as it is now.
type Pull struct {
	Number int    `json:"number"`
	Title  string `json:"title"`
	State  State  `json:"state"`
	Text
	Head gitcmd.Ref `json:"head"`
	Base gitcmd.Ref `json:"base"`
	// HeadCommit and BaseCommit are what the two branches name now; "" where
	// the branch is gone. Of a merged pull request, HeadCommit is what was
	// merged.
	HeadCommit gitcmd.Hash `json:"head_commit"`
	BaseCommit gitcmd.Hash `json:"base_commit"`
	// Landed is the commit that brought it into the base, MergedBy who did it.
	Landed   gitcmd.Hash `json:"landed,omitempty"`
	MergedBy Account     `json:"merged_by"`
	Labels   []Label     `json:"labels,omitempty"`
	Reviews  []Review    `json:"reviews"`
	Closes   int         `json:"closes,omitempty"`
}

// Verdict is what a reviewer said last.
type Verdict string

// The verdicts. The zero value says nothing.
const (
	Approved         Verdict = "approved"
	ChangesRequested Verdict = "changes_requested"
)

// Review is the newest review of one account, bound to the head it was given
// for.
type Review struct {
	By      Account     `json:"by"`
	Verdict Verdict     `json:"verdict"`
	Head    gitcmd.Hash `json:"head"`
	At      time.Time   `json:"at"`
}

// StatusState is the state of a status. The zero value is not a success.
type StatusState string

// The states of a status.
const (
	Pending StatusState = "pending"
	Success StatusState = "success"
	Failure StatusState = "failure"
	Fault   StatusState = "error"
)

// Status is a verdict on one commit, and on nothing else: the same commit may be
// the head of another pull request with another base.
type Status struct {
	Commit      gitcmd.Hash `json:"commit"`
	Context     string      `json:"context"`
	State       StatusState `json:"state"`
	Description string      `json:"description,omitempty"`
	URL         string      `json:"url,omitempty"`
	// By and At are filled by the host.
	By Account   `json:"by"`
	At time.Time `json:"at"`
}

// Thread is where a comment belongs: exactly one of the two numbers.
type Thread struct {
	Issue int
	Pull  int
}

// CommentEdit is the text that the engine's comment with this marker shall have.
type CommentEdit struct {
	Thread Thread
	// Marker names the comment among ours: 1-100 of a-z, 0-9, '.', '_', '-',
	// '/' and ':'.
	Marker string
	Body   string
	// ExpectedHead, where set, is the head of the pull request that the text
	// speaks of. A comment about a head that is no longer there misleads.
	ExpectedHead gitcmd.Hash
}

// BaseCheck says how a host makes sure that a merge lands on the base that was
// tested. The zero value is that it does not.
type BaseCheck string

// The base checks.
const (
	// BaseLease: the exact commit is pushed to the base with a lease.
	BaseLease BaseCheck = "lease"
	// BaseUpToDate: the host merges heads only that contain the base.
	BaseUpToDate BaseCheck = "up_to_date"
	// BaseQueue: the host's own queue tests the merge result.
	BaseQueue BaseCheck = "queue"
)

// Protection is what protects a branch. The zero value protects nothing.
type Protection struct {
	Branch gitcmd.Ref `json:"branch"`
	// Exists is true only if it is known that the host refuses a direct push.
	Exists bool `json:"exists"`
	// RequirePR: changes come in through pull requests only.
	RequirePR bool `json:"require_pr"`
	// RequiredChecks are the contexts that must be a success on the head.
	RequiredChecks    []string  `json:"required_checks"`
	RequiredApprovals int       `json:"required_approvals"`
	BaseCheck         BaseCheck `json:"base_check"`
	// Unknown lists what could not be read or does not hold, and who may pass
	// by the protection: reasons for a person. Anything here refuses a merge.
	Unknown []string `json:"unknown,omitempty"`
}

// MergeRequest lands one pull request as exactly one commit.
type MergeRequest struct {
	Pull         int
	ExpectedHead gitcmd.Hash
	ExpectedBase gitcmd.Hash
	// Commit is what was tested and shall be in the base afterwards. It
	// contains ExpectedBase. Hosts that make the merge commit themselves land
	// another commit; the caller compares trees.
	Commit gitcmd.Hash
	// Objects is the repository that holds Commit.
	Objects *gitcmd.Repo
}

// MergeResult is the answer to a merge.
type MergeResult struct {
	Result
	// Landed is the commit in the base, with Done and Already.
	Landed gitcmd.Hash
}
