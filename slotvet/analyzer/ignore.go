package analyzer

import (
	"go/ast"
	"go/token"
	"strings"
)

const directive = "//slotvet:ignore"

// ignored is where comments say that reports are not wanted, as positions from and to.
type ignored [][2]token.Pos

// ignores reads the comments. One in the comment of a function or of the package is about all of the function or file,
// any other about its line and, if no code stands before it, about the line behind it. One without a reason is reported and does nothing.
func (c *checker) ignores() ignored {
	var all ignored
	for _, file := range c.Files {
		scopes := map[*ast.CommentGroup]ast.Node{file.Doc: file}
		for _, decl := range file.Decls {
			if decl, ok := decl.(*ast.FuncDecl); ok {
				scopes[decl.Doc] = decl
			}
		}
		for _, group := range file.Comments {
			for _, comment := range group.List {
				if !c.isIgnore(comment) {
					continue
				}
				if scope := scopes[group]; scope != nil {
					all = append(all, [2]token.Pos{scope.Pos(), scope.End()})
				} else {
					all = append(all, c.lines(comment.Pos(), group.End()))
				}
			}
		}
	}
	return all
}

func (c *checker) isIgnore(comment *ast.Comment) bool {
	reason, ok := strings.CutPrefix(comment.Text, directive)
	if ok && strings.TrimSpace(reason) == "" {
		c.Reportf(comment.Pos(), "%s needs a reason", directive)
		return false
	}
	return ok && strings.TrimLeft(reason, " \t") != reason
}

// lines returns the lines that a comment at pos is about, in a group that ends at end.
func (c *checker) lines(pos, end token.Pos) [2]token.Pos {
	file := c.Fset.File(pos)
	begin := file.LineStart(file.Line(pos))
	behind := file.Line(end) + 2
	content, err := c.ReadFile(file.Name())
	if err == nil && strings.TrimSpace(string(content[file.Offset(begin):file.Offset(pos)])) != "" {
		behind = file.Line(pos) + 1
	}
	if behind > file.LineCount() {
		return [2]token.Pos{begin, token.Pos(file.Base() + file.Size())}
	}
	return [2]token.Pos{begin, file.LineStart(behind) - 1}
}

func (g ignored) cover(pos token.Pos) bool {
	for _, r := range g {
		if r[0] <= pos && pos <= r[1] {
			return true
		}
	}
	return false
}
