//! The node types of tree-sitter-python. Generated: `UPDATE_EXPECT=1 cargo test -p ridgeline-python kind`.

/// The kind of a syntax node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `aliased_import`
    AliasedImport,
    /// `argument_list`
    ArgumentList,
    /// `as_pattern`
    AsPattern,
    /// `as_pattern_target`
    AsPatternTarget,
    /// `assert_statement`
    AssertStatement,
    /// `assignment`
    Assignment,
    /// `attribute`
    Attribute,
    /// `augmented_assignment`
    AugmentedAssignment,
    /// `await`
    Await,
    /// `binary_operator`
    BinaryOperator,
    /// `block`
    Block,
    /// `boolean_operator`
    BooleanOperator,
    /// `break_statement`
    BreakStatement,
    /// `call`
    Call,
    /// `case_clause`
    CaseClause,
    /// `case_pattern`
    CasePattern,
    /// `chevron`
    Chevron,
    /// `class_definition`
    ClassDefinition,
    /// `class_pattern`
    ClassPattern,
    /// `comment`
    Comment,
    /// `comparison_operator`
    ComparisonOperator,
    /// `complex_pattern`
    ComplexPattern,
    /// `concatenated_string`
    ConcatenatedString,
    /// `conditional_expression`
    ConditionalExpression,
    /// `constrained_type`
    ConstrainedType,
    /// `continue_statement`
    ContinueStatement,
    /// `decorated_definition`
    DecoratedDefinition,
    /// `decorator`
    Decorator,
    /// `default_parameter`
    DefaultParameter,
    /// `delete_statement`
    DeleteStatement,
    /// `dict_pattern`
    DictPattern,
    /// `dictionary`
    Dictionary,
    /// `dictionary_comprehension`
    DictionaryComprehension,
    /// `dictionary_splat`
    DictionarySplat,
    /// `dictionary_splat_pattern`
    DictionarySplatPattern,
    /// `dotted_name`
    DottedName,
    /// `elif_clause`
    ElifClause,
    /// `ellipsis`
    Ellipsis,
    /// `else_clause`
    ElseClause,
    /// `escape_interpolation`
    EscapeInterpolation,
    /// `escape_sequence`
    EscapeSequence,
    /// `except_clause`
    ExceptClause,
    /// `exec_statement`
    ExecStatement,
    /// `expression_list`
    ExpressionList,
    /// `expression_statement`
    ExpressionStatement,
    /// `false`
    False,
    /// `finally_clause`
    FinallyClause,
    /// `float`
    Float,
    /// `for_in_clause`
    ForInClause,
    /// `for_statement`
    ForStatement,
    /// `format_expression`
    FormatExpression,
    /// `format_specifier`
    FormatSpecifier,
    /// `function_definition`
    FunctionDefinition,
    /// `future_import_statement`
    FutureImportStatement,
    /// `generator_expression`
    GeneratorExpression,
    /// `generic_type`
    GenericType,
    /// `global_statement`
    GlobalStatement,
    /// `identifier`
    Identifier,
    /// `if_clause`
    IfClause,
    /// `if_statement`
    IfStatement,
    /// `import_from_statement`
    ImportFromStatement,
    /// `import_prefix`
    ImportPrefix,
    /// `import_statement`
    ImportStatement,
    /// `integer`
    Integer,
    /// `interpolation`
    Interpolation,
    /// `keyword_argument`
    KeywordArgument,
    /// `keyword_pattern`
    KeywordPattern,
    /// `keyword_separator`
    KeywordSeparator,
    /// `lambda`
    Lambda,
    /// `lambda_parameters`
    LambdaParameters,
    /// `line_continuation`
    LineContinuation,
    /// `list`
    List,
    /// `list_comprehension`
    ListComprehension,
    /// `list_pattern`
    ListPattern,
    /// `list_splat`
    ListSplat,
    /// `list_splat_pattern`
    ListSplatPattern,
    /// `match_statement`
    MatchStatement,
    /// `member_type`
    MemberType,
    /// `module`
    Module,
    /// `named_expression`
    NamedExpression,
    /// `none`
    None,
    /// `nonlocal_statement`
    NonlocalStatement,
    /// `not_operator`
    NotOperator,
    /// `pair`
    Pair,
    /// `parameters`
    Parameters,
    /// `parenthesized_expression`
    ParenthesizedExpression,
    /// `parenthesized_list_splat`
    ParenthesizedListSplat,
    /// `pass_statement`
    PassStatement,
    /// `pattern_list`
    PatternList,
    /// `positional_separator`
    PositionalSeparator,
    /// `print_statement`
    PrintStatement,
    /// `raise_statement`
    RaiseStatement,
    /// `relative_import`
    RelativeImport,
    /// `return_statement`
    ReturnStatement,
    /// `set`
    Set,
    /// `set_comprehension`
    SetComprehension,
    /// `slice`
    Slice,
    /// `splat_pattern`
    SplatPattern,
    /// `splat_type`
    SplatType,
    /// `string`
    String,
    /// `string_content`
    StringContent,
    /// `string_end`
    StringEnd,
    /// `string_start`
    StringStart,
    /// `subscript`
    Subscript,
    /// `true`
    True,
    /// `try_statement`
    TryStatement,
    /// `tuple`
    Tuple,
    /// `tuple_pattern`
    TuplePattern,
    /// `type`
    Type,
    /// `type_alias_statement`
    TypeAliasStatement,
    /// `type_conversion`
    TypeConversion,
    /// `type_parameter`
    TypeParameter,
    /// `typed_default_parameter`
    TypedDefaultParameter,
    /// `typed_parameter`
    TypedParameter,
    /// `unary_operator`
    UnaryOperator,
    /// `union_pattern`
    UnionPattern,
    /// `union_type`
    UnionType,
    /// `while_statement`
    WhileStatement,
    /// `wildcard_import`
    WildcardImport,
    /// `with_clause`
    WithClause,
    /// `with_item`
    WithItem,
    /// `with_statement`
    WithStatement,
    /// `yield`
    Yield,
    /// A keyword, an operator, or a syntax error.
    Other,
}

impl Kind {
    /// Returns the kind with this name.
    pub(super) fn named(name: &str) -> Kind {
        match name {
            "aliased_import" => Kind::AliasedImport,
            "argument_list" => Kind::ArgumentList,
            "as_pattern" => Kind::AsPattern,
            "as_pattern_target" => Kind::AsPatternTarget,
            "assert_statement" => Kind::AssertStatement,
            "assignment" => Kind::Assignment,
            "attribute" => Kind::Attribute,
            "augmented_assignment" => Kind::AugmentedAssignment,
            "await" => Kind::Await,
            "binary_operator" => Kind::BinaryOperator,
            "block" => Kind::Block,
            "boolean_operator" => Kind::BooleanOperator,
            "break_statement" => Kind::BreakStatement,
            "call" => Kind::Call,
            "case_clause" => Kind::CaseClause,
            "case_pattern" => Kind::CasePattern,
            "chevron" => Kind::Chevron,
            "class_definition" => Kind::ClassDefinition,
            "class_pattern" => Kind::ClassPattern,
            "comment" => Kind::Comment,
            "comparison_operator" => Kind::ComparisonOperator,
            "complex_pattern" => Kind::ComplexPattern,
            "concatenated_string" => Kind::ConcatenatedString,
            "conditional_expression" => Kind::ConditionalExpression,
            "constrained_type" => Kind::ConstrainedType,
            "continue_statement" => Kind::ContinueStatement,
            "decorated_definition" => Kind::DecoratedDefinition,
            "decorator" => Kind::Decorator,
            "default_parameter" => Kind::DefaultParameter,
            "delete_statement" => Kind::DeleteStatement,
            "dict_pattern" => Kind::DictPattern,
            "dictionary" => Kind::Dictionary,
            "dictionary_comprehension" => Kind::DictionaryComprehension,
            "dictionary_splat" => Kind::DictionarySplat,
            "dictionary_splat_pattern" => Kind::DictionarySplatPattern,
            "dotted_name" => Kind::DottedName,
            "elif_clause" => Kind::ElifClause,
            "ellipsis" => Kind::Ellipsis,
            "else_clause" => Kind::ElseClause,
            "escape_interpolation" => Kind::EscapeInterpolation,
            "escape_sequence" => Kind::EscapeSequence,
            "except_clause" => Kind::ExceptClause,
            "exec_statement" => Kind::ExecStatement,
            "expression_list" => Kind::ExpressionList,
            "expression_statement" => Kind::ExpressionStatement,
            "false" => Kind::False,
            "finally_clause" => Kind::FinallyClause,
            "float" => Kind::Float,
            "for_in_clause" => Kind::ForInClause,
            "for_statement" => Kind::ForStatement,
            "format_expression" => Kind::FormatExpression,
            "format_specifier" => Kind::FormatSpecifier,
            "function_definition" => Kind::FunctionDefinition,
            "future_import_statement" => Kind::FutureImportStatement,
            "generator_expression" => Kind::GeneratorExpression,
            "generic_type" => Kind::GenericType,
            "global_statement" => Kind::GlobalStatement,
            "identifier" => Kind::Identifier,
            "if_clause" => Kind::IfClause,
            "if_statement" => Kind::IfStatement,
            "import_from_statement" => Kind::ImportFromStatement,
            "import_prefix" => Kind::ImportPrefix,
            "import_statement" => Kind::ImportStatement,
            "integer" => Kind::Integer,
            "interpolation" => Kind::Interpolation,
            "keyword_argument" => Kind::KeywordArgument,
            "keyword_pattern" => Kind::KeywordPattern,
            "keyword_separator" => Kind::KeywordSeparator,
            "lambda" => Kind::Lambda,
            "lambda_parameters" => Kind::LambdaParameters,
            "line_continuation" => Kind::LineContinuation,
            "list" => Kind::List,
            "list_comprehension" => Kind::ListComprehension,
            "list_pattern" => Kind::ListPattern,
            "list_splat" => Kind::ListSplat,
            "list_splat_pattern" => Kind::ListSplatPattern,
            "match_statement" => Kind::MatchStatement,
            "member_type" => Kind::MemberType,
            "module" => Kind::Module,
            "named_expression" => Kind::NamedExpression,
            "none" => Kind::None,
            "nonlocal_statement" => Kind::NonlocalStatement,
            "not_operator" => Kind::NotOperator,
            "pair" => Kind::Pair,
            "parameters" => Kind::Parameters,
            "parenthesized_expression" => Kind::ParenthesizedExpression,
            "parenthesized_list_splat" => Kind::ParenthesizedListSplat,
            "pass_statement" => Kind::PassStatement,
            "pattern_list" => Kind::PatternList,
            "positional_separator" => Kind::PositionalSeparator,
            "print_statement" => Kind::PrintStatement,
            "raise_statement" => Kind::RaiseStatement,
            "relative_import" => Kind::RelativeImport,
            "return_statement" => Kind::ReturnStatement,
            "set" => Kind::Set,
            "set_comprehension" => Kind::SetComprehension,
            "slice" => Kind::Slice,
            "splat_pattern" => Kind::SplatPattern,
            "splat_type" => Kind::SplatType,
            "string" => Kind::String,
            "string_content" => Kind::StringContent,
            "string_end" => Kind::StringEnd,
            "string_start" => Kind::StringStart,
            "subscript" => Kind::Subscript,
            "true" => Kind::True,
            "try_statement" => Kind::TryStatement,
            "tuple" => Kind::Tuple,
            "tuple_pattern" => Kind::TuplePattern,
            "type" => Kind::Type,
            "type_alias_statement" => Kind::TypeAliasStatement,
            "type_conversion" => Kind::TypeConversion,
            "type_parameter" => Kind::TypeParameter,
            "typed_default_parameter" => Kind::TypedDefaultParameter,
            "typed_parameter" => Kind::TypedParameter,
            "unary_operator" => Kind::UnaryOperator,
            "union_pattern" => Kind::UnionPattern,
            "union_type" => Kind::UnionType,
            "while_statement" => Kind::WhileStatement,
            "wildcard_import" => Kind::WildcardImport,
            "with_clause" => Kind::WithClause,
            "with_item" => Kind::WithItem,
            "with_statement" => Kind::WithStatement,
            "yield" => Kind::Yield,
            _ => Kind::Other,
        }
    }
}

/// A field of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// `alias`
    Alias,
    /// `alternative`
    Alternative,
    /// `argument`
    Argument,
    /// `arguments`
    Arguments,
    /// `attribute`
    Attribute,
    /// `body`
    Body,
    /// `cause`
    Cause,
    /// `code`
    Code,
    /// `condition`
    Condition,
    /// `consequence`
    Consequence,
    /// `definition`
    Definition,
    /// `expression`
    Expression,
    /// `format_specifier`
    FormatSpecifier,
    /// `function`
    Function,
    /// `guard`
    Guard,
    /// `key`
    Key,
    /// `left`
    Left,
    /// `module_name`
    ModuleName,
    /// `name`
    Name,
    /// `object`
    Object,
    /// `operator`
    Operator,
    /// `operators`
    Operators,
    /// `parameters`
    Parameters,
    /// `return_type`
    ReturnType,
    /// `right`
    Right,
    /// `subject`
    Subject,
    /// `subscript`
    Subscript,
    /// `superclasses`
    Superclasses,
    /// `type`
    Type,
    /// `type_conversion`
    TypeConversion,
    /// `type_parameters`
    TypeParameters,
    /// `value`
    Value,
}

impl Field {
    /// All fields, in the order of the enum.
    pub(super) const ALL: [Field; 32] = [
        Field::Alias,
        Field::Alternative,
        Field::Argument,
        Field::Arguments,
        Field::Attribute,
        Field::Body,
        Field::Cause,
        Field::Code,
        Field::Condition,
        Field::Consequence,
        Field::Definition,
        Field::Expression,
        Field::FormatSpecifier,
        Field::Function,
        Field::Guard,
        Field::Key,
        Field::Left,
        Field::ModuleName,
        Field::Name,
        Field::Object,
        Field::Operator,
        Field::Operators,
        Field::Parameters,
        Field::ReturnType,
        Field::Right,
        Field::Subject,
        Field::Subscript,
        Field::Superclasses,
        Field::Type,
        Field::TypeConversion,
        Field::TypeParameters,
        Field::Value,
    ];

    /// The name in the grammar.
    pub(super) fn name(self) -> &'static str {
        match self {
            Field::Alias => "alias",
            Field::Alternative => "alternative",
            Field::Argument => "argument",
            Field::Arguments => "arguments",
            Field::Attribute => "attribute",
            Field::Body => "body",
            Field::Cause => "cause",
            Field::Code => "code",
            Field::Condition => "condition",
            Field::Consequence => "consequence",
            Field::Definition => "definition",
            Field::Expression => "expression",
            Field::FormatSpecifier => "format_specifier",
            Field::Function => "function",
            Field::Guard => "guard",
            Field::Key => "key",
            Field::Left => "left",
            Field::ModuleName => "module_name",
            Field::Name => "name",
            Field::Object => "object",
            Field::Operator => "operator",
            Field::Operators => "operators",
            Field::Parameters => "parameters",
            Field::ReturnType => "return_type",
            Field::Right => "right",
            Field::Subject => "subject",
            Field::Subscript => "subscript",
            Field::Superclasses => "superclasses",
            Field::Type => "type",
            Field::TypeConversion => "type_conversion",
            Field::TypeParameters => "type_parameters",
            Field::Value => "value",
        }
    }
}
