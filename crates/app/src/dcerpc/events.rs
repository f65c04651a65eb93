//! What may be wrong with DCE/RPC.

events! { "DCE/RPC";
    TooManyTransactions "too_many_transactions";
}
