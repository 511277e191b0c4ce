"""What the tests of the console share: conversations to look at, and the pictures of docs/console.md."""
